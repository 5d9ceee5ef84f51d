"""The elements of a page and their text, from Python's HTML parser."""

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "source", "br"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def find_all(self, tag: str, css_class: str = "") -> list["Element"]:
        matches = []
        for child in self.children:
            classes = child.attributes.get("class", "").split()
            if child.tag == tag and (not css_class or css_class in classes):
                matches.append(child)
            matches.extend(child.find_all(tag, css_class))
        return matches

    def find(self, tag: str, css_class: str = "") -> "Element":
        matches = self.find_all(tag, css_class)
        assert len(matches) == 1, f"{len(matches)} of {tag}.{css_class}"
        return matches[0]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in {tag}: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data


def parse(html: str) -> Element:
    """Return the tree of `html`; elements must be closed, in the right order."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    assert parser.open == [parser.root], [element.tag for element in parser.open]
    return parser.root


def tags(root: Element) -> Counter[str]:
    return sum(map(tags, root.children), Counter(child.tag for child in root.children))
