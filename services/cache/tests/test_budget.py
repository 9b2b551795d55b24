"""Reservation, eviction and expiry as arithmetic: what must hold for any plans, sizes and orders."""

from __future__ import annotations

from datetime import timedelta

import pytest
from forebay.cache.domain.budget import Budgets, Claim, Fits, MakeRoom, Refuse, admit, eviction_order, held_bytes
from forebay.cache.domain.expiry import DEFAULT_TTL_DAYS, ENOUGH_USES, LONGEST_DAYS, expires_at, ttl_days
from hypothesis import given, settings
from hypothesis import strategies as st

from .builders import NOON

KEYS = [f"p{number}/plan" for number in range(8)]


def claim(key: str = "p1/plan", room: int = 100, **changes: object) -> Claim:
    values: dict[str, object] = {
        "key": key,
        "project": key.partition("/")[0],
        "room_bytes": room,
        "wanted": False,
        "expired": False,
        "used_at": NOON,
    }
    return Claim(**(values | changes))  # type: ignore[arg-type]


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    """Claims of a few projects, some sharing bytes with one made before them."""
    made: list[Claim] = []
    for number in range(draw(st.integers(0, 7))):
        room = draw(st.integers(0, 100))
        base = draw(st.sampled_from([None, *(one.key for one in made)]))
        known = next((one.room_bytes for one in made if one.key == base), 0)
        wanted = draw(st.booleans())
        made.append(
            claim(
                f"p{number % 3}/plan-{number}",
                room,
                wanted=wanted,
                expired=not wanted and draw(st.booleans()),
                used_at=NOON + timedelta(days=draw(st.integers(0, 3))),
                bases=((base, max(0, room - draw(st.integers(0, known)))),) if base else (),
                jobs=(f"job-{number}",) if wanted else (),
            )
        )
    return made


budgets = st.one_of(st.none(), st.integers(0, 400))


class TestAdmission:
    @given(claims(), st.integers(0, 150), budgets, budgets)
    @settings(max_examples=300, deadline=None)
    def test_what_is_promised_holds(self, held: list[Claim], room: int, pool: int | None, project: int | None) -> None:
        """After the victims are gone both budgets hold; nobody's plan goes; a refusal means that nothing would help."""
        asked = claim("p0/asked", room, wanted=True)
        limits = Budgets(pool_bytes=pool, project_bytes=project)
        answer = admit(asked, held, limits)
        assert answer == admit(asked, list(reversed(held)), limits)
        victims = answer.victims if isinstance(answer, MakeRoom) else ()
        by_key = {one.key: one for one in held}
        assert not any(by_key[key].wanted for key in victims)
        if isinstance(answer, Refuse):
            left = [asked, *(one for one in held if one.wanted)]
            over_pool = pool is not None and held_bytes(left) > pool
            mine = [one for one in left if one.project == "p0"]
            assert over_pool or (project is not None and held_bytes(mine) > project)
            assert answer.needed_bytes > answer.available_bytes
            return
        left = [asked, *(one for one in held if one.key not in victims)]
        for budget, counted in ((pool, left), (project, [one for one in left if one.project == "p0"])):
            takes_room = held_bytes(counted) > held_bytes(one for one in counted if one is not asked)
            assert budget is None or not takes_room or held_bytes(counted) <= budget
        if isinstance(answer, MakeRoom):
            assert isinstance(admit(asked, [one for one in held if one.key not in victims], limits), Fits)

    @given(claims())
    @settings(deadline=None)
    def test_the_order_of_going(self, held: list[Claim]) -> None:
        """Expired first, then unused for longest; never what is wanted; whatever order they come in."""
        order = eviction_order(held)
        assert order == eviction_order(reversed(held))
        assert not any(one.wanted for one in order)
        assert [one.expired for one in order] == sorted((one.expired for one in order), reverse=True)
        for expired in (True, False):
            times = [one.used_at for one in order if one.expired is expired]
            assert times == sorted(times)

    def test_no_more_goes_than_is_needed(self) -> None:
        """The first to go makes room enough, so the second stays."""
        old, new = claim("p1/old", 60), claim("p1/new", 40, used_at=NOON + timedelta(days=1))
        answer = admit(claim("p0/asked", 50, wanted=True), [new, old], Budgets(pool_bytes=100, project_bytes=None))
        assert answer == MakeRoom(victims=("p1/old",))

    def test_a_project_makes_room_among_its_own(self) -> None:
        """Another project's unused plans are not touched for a project's own budget."""
        mine, other = claim("p0/mine", 60), claim("p1/other", 500)
        answer = admit(claim("p0/asked", 50, wanted=True), [mine, other], Budgets(pool_bytes=None, project_bytes=100))
        assert answer == MakeRoom(victims=("p0/mine",))

    def test_shared_bytes_count_once(self) -> None:
        """A version with a little more than the one before takes only that much room beside it."""
        before = claim("p0/v1", 90, wanted=True, jobs=("one-1",))
        after = claim("p0/v2", 95, wanted=True, bases=(("p0/v1", 5),))
        answer = admit(after, [before], Budgets(pool_bytes=100, project_bytes=None))
        assert answer == Fits(reserved_bytes=5, available_bytes=5)
        assert held_bytes([after]) == 95

    def test_sharing_outlives_the_one_between(self) -> None:
        """When the plan in the middle of three versions goes, the last still shares with the first."""
        first = claim("p0/v1", 90, wanted=True)
        last = claim("p0/v3", 100, wanted=True, bases=(("p0/v2", 5), ("p0/v1", 10)))
        middle = claim("p0/v2", 95, bases=(("p0/v1", 5),))
        assert held_bytes([first, middle, last]) == 100
        assert held_bytes([first, last]) == 100
        assert held_bytes([last]) == 100

    def test_a_refusal_has_every_number(self) -> None:
        """Needed, to be had, in all, evictable, and who holds the rest."""
        held = [claim("p1/a", 70, wanted=True, jobs=("big-1",)), claim("p1/b", 20)]
        answer = admit(claim("p0/asked", 40_000, wanted=True), held, Budgets(pool_bytes=100, project_bytes=None))
        assert isinstance(answer, Refuse)
        assert (answer.needed_bytes, answer.budget_bytes, answer.available_bytes) == (40_000, 100, 30)
        assert answer.evictable_bytes == 20
        assert "needs 40.0 KB of cache, but of the 100 bytes of the cache only 30 bytes can be had" in answer.message
        assert "20 bytes of them by evicting what nobody uses; the rest is leased by big-1" in answer.message


class TestExpiry:
    @given(st.dictionaries(st.integers(0, 400).map(str), st.integers(1, 50)))
    def test_the_time_to_live_covers_most_uses(self, ages: dict[str, int]) -> None:
        """With enough uses on record four fifths of them lie within it, as far as it may reach."""
        days, total = ttl_days(ages), sum(ages.values())
        if total < ENOUGH_USES:
            assert days == DEFAULT_TTL_DAYS
            return
        covered = sum(count for age, count in ages.items() if int(age) <= days)
        assert days == LONGEST_DAYS or covered >= 0.8 * total

    @pytest.mark.parametrize(("ages", "days"), [({"0": 80, "40": 20}, 1), ({"0": 10, "30": 90}, 30)])
    def test_it_follows_the_uses(self, ages: dict[str, int], days: int) -> None:
        """Data used only when fresh goes soon; data that is come back to stays."""
        assert ttl_days(ages) == days
        assert ttl_days(ages, chosen=3) == 3

    def test_expiry_falls_on_full_hours(self) -> None:
        """Few alarms: a plan expires at the full hour after its time."""
        assert expires_at(NOON, 8) == NOON + timedelta(days=8)
        assert expires_at(NOON + timedelta(minutes=1), 8) == NOON + timedelta(days=8, hours=1)
