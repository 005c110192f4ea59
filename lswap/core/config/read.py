"""Sources → one document: decode, replace `${env.X}`, compose, check, merge. All sources are looked at first."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence

from lswap.core.config.compose import Composer
from lswap.core.config.environment import Environment
from lswap.core.config.merge import merge
from lswap.core.config.nodes import Map, Scalar, Seq
from lswap.core.config.problems import Place, Report, Source, Text

__all__ = ["Document", "read"]


class Document:
    """What was read."""

    def __init__(self) -> None:
        self.root = Map()
        #: Mappings in which a key stands twice, with their paths.
        self.repeated: list[tuple[Map, str]] = []
        #: Places of anchors.
        self.anchored: set[Place] = set()
        #: Characters of all sources.
        self.size = 0


def read(sources: Sequence[Source], environ: Mapping[str, str], report: Report) -> Document | None:
    """The merged document; None if a source cannot be read (reported)."""
    document = Document()
    environment = Environment(environ, report)
    usable = True
    roots: list[Map] = []
    for number, source in enumerate(sources):
        raw = _decode(source, report, number)
        if raw is None:
            usable = False
            continue
        text, replaced = environment.replace(source.path, raw)
        report.texts[number] = text
        before = report.count
        composer = Composer(report, number)
        root = composer.compose(replaced)
        environment.check(root)
        environment.check_api_keys(root, text, replaced)
        document.size += len(replaced)
        document.repeated += composer.repeated
        document.anchored |= composer.anchored
        if isinstance(root, Map):
            roots.append(root)
        elif isinstance(root, Seq):
            report.error(root.place, "", f"config {source.path}: top-level YAML must be a mapping")
            usable = False
        elif root is None and report.count > before:
            usable = False
        elif isinstance(root, Scalar) and root.value is not None:
            report.warn(root.place, "", "this file has only a text in it, which is ignored")
    if not usable or environment.broken:
        return None
    for root in roots:
        document.root.place = roots[0].place
        document.root = merge(document.root, root, report)
    return document


def _decode(source: Source, report: Report, number: int) -> str | None:
    data = source.text.removeprefix(codecs.BOM_UTF8)
    for mark, name in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            try:
                return _noted(data[len(mark) :].decode(name), source, report)
            except UnicodeDecodeError:
                break
    try:
        return _noted(data.decode("utf-8"), source, report)
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8", "replace")
        report.texts.append(Text(source.path, good))
        report.error(Place(number, len(good)), "", f"failed to parse config {source.path}: invalid UTF-8")
        return None


def _noted(text: str, source: Source, report: Report) -> str:
    report.texts.append(Text(source.path, text))
    return text
