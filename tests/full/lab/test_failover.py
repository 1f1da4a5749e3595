"""The account alone: the command needs etcd, Patroni and minutes."""

from lab.chaos.failover import Account, Row, balance, rate_back_at, resumed_at

DONE = Row(job_id=1, status="completed", crash_count=0, finished_at=1.0)
CRASHED = Row(job_id=3, status="completed", crash_count=1, finished_at=1.0)


def account(rows: dict[int, Row], *numbers: int) -> Account:
    """The account of numbers 1 to 3, the last unanswered, by who began them."""
    executions = [(number, number) for number in numbers]
    return balance({1, 2}, {3}, list(rows.items()), executions)


def test_every_job_is_accounted_for_when_all_three_tell_the_same() -> None:
    told = account({1: DONE, 2: DONE, 3: CRASHED}, 1, 2, 3, 3)

    assert told.accounts_for_every_job(is_synchronous=True)
    assert (told.unanswered_found, told.crashed, told.repeated) == (1, 1, 1)


def test_what_is_lost_doubled_or_not_done_is_not_accounted_for() -> None:
    waiting = Row(job_id=2, status="pending", crash_count=0, finished_at=None)
    twice = [(1, DONE), (1, DONE), (2, DONE)]
    assert not account({1: DONE}, 1).accounts_for_every_job(is_synchronous=True)
    assert not account({1: DONE, 2: waiting}, 1).accounts_for_every_job(
        is_synchronous=False
    )
    assert not account({1: DONE, 2: DONE}, 1).accounts_for_every_job(
        is_synchronous=False
    ), "not run"
    assert not account({1: DONE, 2: DONE}, 1, 2, 2).accounts_for_every_job(
        is_synchronous=True
    )
    assert not balance({1, 2}, set(), twice, [(1, 1), (2, 2)]).accounts_for_every_job(
        is_synchronous=False
    )


def test_without_a_synchronous_standby_a_loss_is_told_and_no_more() -> None:
    told = account({1: DONE}, 1, 1, 2)

    assert told.accounts_for_every_job(is_synchronous=False)
    assert (told.lost, told.unexplained) == (1, 1)


def test_what_a_fault_has_stopped_resumes_after_the_longest_gap() -> None:
    steady = [n / 10 for n in range(100)]
    times = [t for t in steady if not 3.05 < t < 5.05]

    resumed = resumed_at(times, 3.0, 9.0)

    assert resumed == 5.1
    assert rate_back_at(times, 3.0, resumed, 9.0) == 5.1
    assert resumed_at(times, 20.0, 30.0) is None
    assert rate_back_at([*steady[:30], *steady[50::2]], 3.0, 5.0, 9.0) is None
