"""Ctrl-C while others work: it is heard, and never where a lock would stay taken."""

import signal
import threading
from concurrent.futures import Future

import pytest

from dmuh.machine.workers import result_of, uninterrupted, wait_for_one


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_waits_for_the_end_of_the_block():
    went_on = False

    def press() -> None:
        nonlocal went_on
        with uninterrupted():
            press_ctrl_c()
            went_on = True

    with pytest.raises(KeyboardInterrupt):
        press()
    assert went_on
    with pytest.raises(KeyboardInterrupt):  # and is heard at once afterwards
        press_ctrl_c()


def test_an_error_of_the_block_is_the_one_that_is_raised():
    with pytest.raises(ValueError, match="own"), uninterrupted():
        raise ValueError("own")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_have_nothing_to_wait_for():
    handlers = []

    def work() -> None:
        with uninterrupted():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_who_ignores_ctrl_c_goes_on_to():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            press_ctrl_c()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_wait_is_ended_by_ctrl_c_and_the_future_is_free():
    future: Future[int] = Future()
    threading.Timer(0.05, press_ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        result_of(future)
    setting = threading.Thread(target=future.set_result, args=(3,))
    setting.start()
    setting.join()
    assert result_of(future) == 3


def test_a_wait_ends_with_the_first_that_is_done_or_with_its_time():
    first, second = Future[int](), Future[int]()
    assert wait_for_one([first, second], 0.01) == set()
    second.set_exception(TimeoutError("of the work"))
    assert wait_for_one([first, second]) == {second}
    with pytest.raises(TimeoutError, match="of the work"):
        result_of(second)
