"""The names of columns of tables, the table `data.columns` of a recipe."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnNames:
    """The column of each field of an example."""

    def of(self, key: str) -> dict[str, str]:
        """Return the columns of a file by field; `key` is that of the file in [data]."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextColumns(ColumnNames):
    """Column of texts."""

    text: str = "text"  # column with the texts


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerColumns(ColumnNames):
    """Columns of texts, and of questions with answers."""

    text: str = "text"  # column of `data.pretrain` with the texts
    question: str = "question"  # column with the questions
    answer: str = "answer"  # column with the answers

    def of(self, key: str) -> dict[str, str]:
        """Return the column of the texts for `pretrain`, else those of the questions."""
        fields = ("text",) if key == "pretrain" else ("question", "answer")
        return {field: getattr(self, field) for field in fields}


@dataclass(frozen=True, kw_only=True, slots=True)
class PairColumns(ColumnNames):
    """Columns of sentences and their translations."""

    source: str = "source"  # column with the sentences
    target: str = "target"  # column with their translations


@dataclass(frozen=True, kw_only=True, slots=True)
class TagColumns(ColumnNames):
    """Columns of lists of words and of their tags."""

    words: str = "words"  # column with a list of words per sentence
    tags: str = "tags"  # column with a list of tags per sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledTextColumns(ColumnNames):
    """Columns of texts with labels."""

    text: str = "text"  # column with the texts
    label: str = "label"  # column with the label, or with several labels


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledSoundColumns(ColumnNames):
    """Columns of sound files with labels."""

    audio: str = "audio"  # column with the paths of the sounds
    label: str = "label"  # column with the label, or with several labels


@dataclass(frozen=True, kw_only=True, slots=True)
class LabeledImageColumns(ColumnNames):
    """Columns of image files with labels."""

    image: str = "image"  # column with the paths of the images
    label: str = "label"  # column with the label, or with several labels
