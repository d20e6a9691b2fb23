# ruff: noqa: INP001, D103, E501 - a script beside what it writes; names say it; a style sheet has long lines
"""Draws docs/clock.svg, the clock of a block's last two hours, from the rules themselves.

    python docs/clock.py

Every time in the picture comes from `blockkeeper.domain`: deadlines from `deadlines`, scale-ins from the plan that `calendar` makes for a
group. A test compares the picture with what this script draws now, and its times with times computed by hand.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "functions"))

from blockkeeper.domain.calendar import LAST_LOOK, GroupBlock, GroupFacts, Sizes, plan_group  # noqa: E402
from blockkeeper.domain.deadlines import DRAIN_MARGIN, SCHEDULED_ACTION_LATENESS, Deadlines  # noqa: E402
from blockkeeper.domain.reservation import parse_reservation  # noqa: E402

PICTURE = ROOT / "docs" / "clock.svg"
END = datetime(2026, 5, 4, 11, 30, tzinfo=UTC)
SHOWN = timedelta(hours=2)
# EC2 User Guide, "Monitor Capacity Blocks using EventBridge". Nothing of ours is computed from it.
WARNING_LEAD = timedelta(minutes=40)
MINUTE = timedelta(minutes=1)

WIDTH, LEFT, RIGHT = 1000, 210, 26
PER_MINUTE = (WIDTH - LEFT - RIGHT) / (SHOWN / MINUTE)
CALLOUT_TOP, CALLOUT_ROW = 84, 24
LANE_TOP, LANE_STEP, LANE = 222, 50, 26

STYLE = """
svg { font-family: -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; font-size: 14px; }
.paper { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; } .quiet { fill: #59636e; } .title { font-size: 18px; font-weight: 600; }
.time { font-weight: 600; } .line { stroke: #8c959f; stroke-dasharray: 3 3; } .axis { stroke: #d0d7de; }
.runs { fill: #2da44e; } .late { fill: #94d3a2; } .drains { fill: #e3a008; } .reserve { fill: #d1d9e0; } .killed { fill: #f7b0ae; }
.orders { fill: #0969da; } .pays { fill: #85b7f2; } .on { fill: #ffffff; } .dark { fill: #1f2328; }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117; stroke: #3d444d; } text { fill: #f0f6fc; } .quiet { fill: #9198a1; } .line { stroke: #656c76; } .axis { stroke: #3d444d; }
.runs { fill: #238636; } .late { fill: #7ee2a0; } .drains { fill: #d29922; } .reserve { fill: #4a525c; } .killed { fill: #8b2a27; }
.orders { fill: #1f6feb; } .pays { fill: #79b8ff; } .on { fill: #ffffff; } .dark { fill: #0d1117; }
}
"""


def scale_in(hook: timedelta, *, ultraserver: bool = False) -> datetime:
    """When a group with such a terminating hook goes to zero: the time of the end's scheduled action."""
    shown_by_ec2 = {
        "CapacityReservationId": "cr-0a1",
        "ReservationType": "capacity-block",
        "OwnerId": "111122223333",
        "InstanceType": "p6e-gb200.36xlarge" if ultraserver else "p5.48xlarge",
        "TotalInstanceCount": 4,
        "State": "active",
        "StartDate": END - timedelta(days=2),
        "EndDate": END,
    }
    block = parse_reservation(shown_by_ec2, "us-east-1")
    assert block.ultraserver is ultraserver  # noqa: S101 - else the picture would lie
    group = GroupFacts("train", Sizes(0, 4, 4), longest_hook=hook, hook_name="drain", instances=4)
    (action,) = plan_group([GroupBlock(block)], group, (), END - timedelta(hours=6)).actions
    return action.at


def clock(at: datetime) -> str:
    return f"{at:%H:%M}"


def lead(at: datetime) -> str:
    return "T" if at == END else f"T - {(END - at) // MINUTE} min"


def x(at: datetime) -> float:
    return round(WIDTH - RIGHT - (END - at) / MINUTE * PER_MINUTE, 1)


def words(at: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{at}" y="{y}" class="{kind}" text-anchor="{anchor}">{content}</text>'


def bar(start: datetime, stop: datetime, y: float, kind: str) -> str:
    return f'<rect x="{x(start)}" y="{y}" width="{round(x(stop) - x(start), 1)}" height="{LANE}" class="{kind}"/>'


def callouts(bottom: float) -> Iterator[str]:
    """What happens at fixed moments: the later, the higher, so that no text crosses a line."""
    usual, ultra = Deadlines(END), Deadlines(END, ultraserver=True)
    assert usual.terminates_at - LAST_LOOK == usual.pay_by  # noqa: S101 - one line stands for both
    assert ultra.terminates_at == usual.order_by  # noqa: S101 - and so here
    happens = [
        (END, "the block ends"),
        (usual.terminates_at, "EC2 terminates what still runs"),
        (usual.pay_by, "last payment that counts; who is still there is reported"),
        (END - WARNING_LEAD, "EC2 warns; EKS and Karpenter begin their own drains"),
        (ultra.terminates_at, "EC2 takes no more orders, and terminates UltraServers"),
    ]
    for row, (at, what) in enumerate(happens):
        y = CALLOUT_TOP + row * CALLOUT_ROW
        yield f'<line x1="{x(at)}" x2="{x(at)}" y1="{y - 12}" y2="{bottom}" class="line"/>'
        text = f'{escape(what)} <tspan class="time">{clock(at)}</tspan> <tspan class="quiet">({lead(at)})</tspan>'
        yield words(x(at) - 8, y, text, anchor="end")


def extension(y: float) -> Iterator[str]:
    deadlines = Deadlines(END)
    yield words(LEFT - 14, y + 18, "Extension", anchor="end")
    yield bar(END - SHOWN, deadlines.order_by, y, "orders")
    yield bar(deadlines.order_by, deadlines.pay_by, y, "pays")
    yield words(LEFT + 10, y + 18, f"EC2 takes orders; a person decides until {clock(deadlines.decide_by)}", "on")
    yield words(x(deadlines.order_by) + 8, y + 18, "payment under way", "dark")


def group(y: float, name: str, hook: timedelta, *, ultraserver: bool = False) -> Iterator[str]:
    drains = scale_in(hook, ultraserver=ultraserver)
    terminates = Deadlines(END, ultraserver=ultraserver).terminates_at
    late = drains + SCHEDULED_ACTION_LATENESS
    yield words(LEFT - 14, y + 18, name, anchor="end")
    yield bar(END - SHOWN, drains, y, "runs")
    yield bar(drains, late, y, "late")
    if hook:
        yield bar(late, late + hook, y, "drains")
    yield bar(late + hook, late + hook + DRAIN_MARGIN, y, "reserve")
    yield bar(terminates, END, y, "killed")
    yield words(x(drains) - 8, y + 18, f"to zero at {clock(drains)}", "on time", "end")


def legend(y: float) -> Iterator[str]:
    late, reserve = SCHEDULED_ACTION_LATENESS // MINUTE, DRAIN_MARGIN // MINUTE
    kinds = [
        ("runs", "instances run", 122),
        ("late", f"Auto Scaling may be {late} min late", 226),
        ("drains", "drain: the hook, or drain_minutes", 246),
        ("reserve", f"{reserve} min in reserve", 150),
        ("killed", "EC2 terminates", 0),
    ]
    at = 26
    for kind, meaning, step in kinds:
        yield f'<rect x="{at}" y="{y - 12}" width="14" height="14" rx="3" class="{kind}"/>'
        yield words(at + 20, y, meaning)
        at += step


def picture() -> str:
    """The whole SVG."""
    lanes = [
        ("No hook", timedelta(0), False),
        ("Hook of 5 min", timedelta(minutes=5), False),
        ("Hook of 10 min", timedelta(minutes=10), False),
        ("UltraServers, 10 min", timedelta(minutes=10), True),
    ]
    bottom = LANE_TOP + LANE_STEP * (len(lanes) + 1)
    height = bottom + 84
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        '<title id="title">The clock of a block\'s last two hours</title>',
        f"<style>{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10" class="paper"/>',
        words(26, 38, "The clock of a block's last two hours", "title"),
        words(26, 60, f"for a block that ends at {clock(END)} UTC (T)", "quiet"),
        *callouts(bottom - 8),
        *extension(LANE_TOP),
    ]
    for row, (name, hook, ultraserver) in enumerate(lanes, start=1):
        parts += group(LANE_TOP + row * LANE_STEP, name, hook, ultraserver=ultraserver)
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" class="axis"/>')
    for quarter in range(0, SHOWN // MINUTE + 1, 15):
        at = END - SHOWN + quarter * MINUTE
        parts.append(f'<line x1="{x(at)}" x2="{x(at)}" y1="{bottom}" y2="{bottom + 5}" class="axis"/>')
        parts.append(words(x(at), bottom + 21, clock(at), "quiet", "middle"))
    parts += legend(bottom + 58)
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
