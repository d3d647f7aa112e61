"""Runs of one prompt as an animated picture: each writes its answer at its recorded pace, slowed or hastened alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from decoders.trace.trace import Trace
from specviz.views.step_words import Piece, pieces
from specviz.words import decimals, plural

from .comparison import check_comparable
from .sheet import ACCEPTED, BODY, INK, OFFERED, PAPER, RULE, SMALL, SOFT, Shape, Sheet, printable, shorten, width
from .svg import document, element_of

SECONDS = 6.0  # of the picture, over and over
HELD = 1.0  # of these, in which all stands still at the end
WIDEST, LINES = 64, 24  # characters and lines of a lane's text; what goes beyond is not drawn
LINE, GAP, MARGIN, BAR = 11.0, 18.0, 10.0, 4.0
TITLE = 9.5  # size of type

Moment = tuple[float, int, int]  # share of the picture's time at which items of the sheet appear: from, to


@dataclass(slots=True)
class Race:
    """The picture while it is drawn: what is there from the beginning on its sheet, and what appears when. ``bars``:
    per lane its bar's item, and by time how much of it is filled.
    """

    sheet: Sheet
    moments: list[Moment] = field(default_factory=list)
    bars: list[tuple[int, list[tuple[float, float]]]] = field(default_factory=list)


def race_svg(traces: Sequence[Trace]) -> str:
    """Lanes side by side, in the order given. Times are of decoding, as recorded, without reading the prompt. Raises
    UserError for runs that cannot be compared.
    """
    check_comparable(traces)
    lanes = [list(pieces(trace)) for trace in traces]
    longest = max(max((len(line) for line in _whole(lane).split("\n")), default=1) for lane in lanes)
    wide = max(150.0, width("0" * min(WIDEST, longest), BODY, "mono") + 4)
    slowest = max(_ms(trace) for trace in traces)
    share = (SECONDS - HELD) / SECONDS / slowest  # of the picture's time, per ms of a run
    title = str(traces[0].run.get("title") or "a race")
    race = Race(Sheet(title, outcome(traces), 2 * MARGIN + len(traces) * wide + (len(traces) - 1) * GAP))
    bottom = max(
        _lane(race, trace, lane, MARGIN + n * (wide + GAP), wide, share)
        for n, (trace, lane) in enumerate(zip(traces, lanes, strict=True))
    )
    _legend(race.sheet, bottom + LINE, slowest)
    race.sheet.height += MARGIN - 2
    return document(race.sheet, _body(race), _timing(race))


def outcome(traces: Sequence[Trace]) -> str:
    """The runs in one sentence, as in "106 tokens: 106 forwards and 2.80 s by plain decoding, …"."""
    lane_texts = (
        f"{plural(trace.rows('steps'), 'forward')} and {_seconds(trace)} by {_name(trace)}" for trace in traces
    )
    return f"{plural(len(traces[0].output_ids), 'token')}: {', '.join(lane_texts)}."


def _name(trace: Trace) -> str:
    return str(trace.run["method"].get("title") or trace.run["method"]["name"]).partition(":")[0]


def _ms(trace: Trace) -> float:
    return float(trace.run.get("timings", {}).get("decode_ms") or trace.tables["steps"]["elapsed_ms"][-1] or 1.0)


def _seconds(trace: Trace) -> str:
    return f"{decimals(_ms(trace) / 1000, 2)} s"


def _whole(lane: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in lane).expandtabs(4)


def _lane(race: Race, trace: Trace, lane: Sequence[Piece], left_edge: float, wide: float, share: float) -> float:
    """A run: its name, the bar, the text, and its numbers when it is over; returns where it ends."""
    sheet, top = race.sheet, MARGIN + TITLE
    numbers = f"{plural(trace.rows('steps'), 'forward')} · {_seconds(trace)}"
    room = wide - width(numbers, TITLE, "bold") - 8
    sheet.text(left_edge, top, shorten(_name(trace), room, TITLE, "bold"), TITLE, face="bold")
    sheet.box(left_edge, top + 6, wide, BAR, fill=OFFERED)
    sheet.box(left_edge, top + 6, wide, BAR, fill=ACCEPTED)
    tokens, length, fill_steps = 0, max(1, len(trace.output_ids)), []
    bar = len(sheet.items) - 1
    steps = trace.tables["steps"]
    for emitted, at in zip(steps["emitted"], steps["elapsed_ms"], strict=True):
        tokens += emitted
        fill_steps.append((float(at or 0.0) * share, tokens / length))
    race.bars.append((bar, fill_steps))
    y = _text(race, lane, left_edge, top + 6 + BAR + LINE + 4, wide, share)
    first = len(sheet.items)
    sheet.text(left_edge + wide, top, numbers, TITLE, face="bold", color=ACCEPTED, right=True)
    race.moments.append((_ms(trace) * share, first, len(sheet.items)))
    return y


def _text(race: Race, lane: Sequence[Piece], left_edge: float, top: float, wide: float, share: float) -> float:
    """The answer piece by piece: what was accepted of a draft on a ground of its own."""
    sheet, advance = race.sheet, width("0", BODY, "mono")
    line_columns, column, row = int(wide / advance), 0, 0
    for piece in lane:
        first = len(sheet.items)
        for n, part in enumerate(piece.text.expandtabs(4).split("\n")):
            if n:
                column, row = 0, row + 1
            text = printable(part, "mono")
            while text and row < LINES:
                piece_of_line, text = text[: line_columns - column], text[line_columns - column :]
                x, y = left_edge + column * advance, top + row * LINE
                bare = piece_of_line.strip()
                if piece.accepted and bare:
                    indent = len(piece_of_line) - len(piece_of_line.lstrip())
                    sheet.box(x + indent * advance, y - 7.6, len(bare) * advance, LINE - 1, fill=OFFERED)
                sheet.text(x, y, piece_of_line, face="mono", color=ACCEPTED if piece.accepted else INK)
                column += len(piece_of_line)
                if text:
                    column, row = 0, row + 1
        race.moments.append((piece.at * share, first, len(sheet.items)))
    return top + min(row, LINES) * LINE


def _legend(sheet: Sheet, y: float, slowest: float) -> None:
    sheet.box(MARGIN, y - 6.3, 9, 7, fill=OFFERED)
    x = MARGIN + 13 + sheet.text(MARGIN + 13, y, "accepted from a draft", SMALL, color=SOFT) + 10
    sheet.text(x, y, "x", face="mono")
    sheet.text(x + 9, y, "the target's own token", SMALL, color=SOFT)
    pace = f"as recorded, {decimals(slowest / 1000, 1)} s shown in {SECONDS - HELD:g} s"
    sheet.text(sheet.width - MARGIN, y, pace, SMALL, color=SOFT, right=True)


def _body(race: Race) -> Iterator[str]:
    """The items, those that appear together in a group with the name of its moment."""
    sheet = race.sheet
    high = sheet.height
    yield element_of(Shape(((0, 0), (sheet.width, 0), (sheet.width, high), (0, high)), RULE, PAPER))
    begins = {first: (n, last) for n, (_, first, last) in enumerate(race.moments) if last > first}
    bars = {item: n for n, (item, _) in enumerate(race.bars)}
    at = 0
    while at < len(sheet.items):
        if at in begins:
            number, last = begins[at]
            yield f'<g class="m{number}">{"".join(map(element_of, sheet.items[at:last]))}</g>'
            at = last
            continue
        item = element_of(sheet.items[at])
        yield f'<g class="b{bars[at]}">{item}</g>' if at in bars else item
        at += 1


def _timing(race: Race) -> str:
    """Style sheet: every group appears at its moment; who asks for less motion sees the end."""
    rules = ["@media (prefers-reduced-motion:no-preference){"]
    for number, (share, first, last) in enumerate(race.moments):
        if last > first:
            rules.append(f".m{number}{{animation:m{number} {SECONDS:g}s step-end infinite}}")
            rules.append(f"@keyframes m{number}{{0%{{opacity:0}}{_percent(share)}{{opacity:1}}}}")
    for number, (item, fill_steps) in enumerate(race.bars):
        shape = race.sheet.items[item]
        assert isinstance(shape, Shape)
        origin = f"transform-origin:{shape.points[0][0]:g}px 0"
        rules.append(f".b{number}{{{origin};animation:b{number} {SECONDS:g}s step-end infinite}}")
        frames = "".join(f"{_percent(share)}{{transform:scaleX({part:.3f})}}" for share, part in fill_steps)
        rules.append(f"@keyframes b{number}{{0%{{transform:scaleX(0)}}{frames}}}")
    return "".join([*rules, "}"])


def _percent(share: float) -> str:
    return f"{min(99.9, max(0.01, 100 * share)):.2f}%"
