import base64
import hashlib
import re

import pytest
from markupsafe import Markup

from harken.report.page import Section, page

from .parsed import Element, parse
from .sample import EXAMPLES, TOKENS


def build(*titles: str) -> Element:
    sections = [Section(title=title, body=Markup("<p>b</p>"), lead="l") for title in titles]
    return parse(page("t", subtitle="s", sections=sections, facts={"k": "v"}, footer="f"))


def policy(html: str) -> dict[str, str]:
    metas = parse(html).find("html").find_all("meta")
    (content,) = [m.attributes["content"] for m in metas if "http-equiv" in m.attributes]
    return dict(rule.strip().split(" ", 1) for rule in content.split(";"))


def test_the_policy_allows_the_one_script_and_nothing_else(sample: str) -> None:
    rules = policy(sample)
    script = parse(sample).find("script").text
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert rules["img-src"] == "data:"
    assert rules["style-src"] == "'unsafe-inline'"
    positions = [sample.index(part) for part in ("Content-Security-Policy", "<style", "<script")]
    assert positions == sorted(positions)


def test_nothing_is_fetched(sample: str) -> None:
    assert not re.search(r"https?://|//cdn|@import", sample)
    for tag in ("img", "source", "script", "link", "a"):
        for element in parse(sample).find_all(tag):
            for name in ("src", "srcset", "href"):
                address = element.attributes.get(name, "data:")
                assert address.startswith(("data:", "#")), address


def test_no_inline_handlers_and_no_early_end_of_script_and_style(sample: str) -> None:
    def attributes(element: Element) -> set[str]:
        return set(element.attributes).union(*map(attributes, element.children))

    tree = parse(sample)
    assert not [name for name in attributes(tree) if name.startswith("on")]
    assert "</" not in tree.find("script").text + tree.find("style").text
    assert "\r" not in sample


def test_sample_is_small_and_complete(sample: str) -> None:
    assert 40_000 < len(sample.encode()) < 200_000
    tree = parse(sample)
    assert len(tree.find_all("span", "small")) == 16
    assert len(tree.find("ol", "keys").find_all("li")) == len(TOKENS) == 25
    assert len(tree.find("div", "examples").find_all("td", "confidence")) == len(EXAMPLES) == 6
    assert len(tree.find("div", "results").find_all("circle")) == 4
    assert len(tree.find("svg", "lines").find_all("path")) == 2
    ids = re.findall(r'\sid="([^"]*)"', sample)
    assert len(ids) == len(set(ids)) == 5


def test_contents_link_to_sections() -> None:
    tree = build("Attention maps", "Résumé", "Attention maps!", "结果", "结果")
    targets = [section.attributes["id"] for section in tree.find_all("section")]
    links = [a.attributes["href"] for a in tree.find("nav").find_all("a")]
    assert links == [f"#{target}" for target in targets]
    assert targets == ["attention-maps", "resume", "attention-maps-3", "section-4", "section-5"]
    facts = tree.find("dl", "facts")
    assert (facts.find("dt").text, facts.find("dd").text) == ("k", "v")
    assert [lead.text for lead in tree.find_all("p", "lead")] == ["l"] * 5
    assert tree.find("footer").text == "f"


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_section_needs_no_contents(count: int) -> None:
    assert not build(*["a"] * count).find_all("nav")
