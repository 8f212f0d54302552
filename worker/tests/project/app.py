"""Functions that the tests call in the worker."""

import asyncio
import contextvars
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import types

log = logging.getLogger("my.app")


def run(input):
    return {"output": input.upper()}


async def arun(input):
    await asyncio.sleep(0)
    return {"output": input.upper()}


def echo(value):
    return value


def nap(seconds):
    time.sleep(seconds)
    return threading.current_thread().name


async def anap(seconds):
    await asyncio.sleep(seconds)
    return seconds


async def cancellable(path):
    try:
        log.info("started")
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        with open(path, "w") as f:
            f.write("cancelled")
        raise


def wait_for_file(path):
    log.info("started")
    while not os.path.exists(path):
        time.sleep(0.005)
    with open(path + ".done", "w") as f:
        f.write("done")


def fail(text):
    raise ValueError(text)


def chained():
    try:
        fail("first")
    except ValueError as e:
        raise KeyError("second") from e


class Odd(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


EXCEPTIONS = {
    "Odd": Odd,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "Unprintable": Unprintable,
}


def raise_(name):
    raise EXCEPTIONS[name]()


async def araise(name):
    await asyncio.sleep(0)
    raise EXCEPTIONS[name]()


async def cancel_myself():
    asyncio.current_task().cancel()
    await asyncio.sleep(10)


async def exit_in_a_task():
    async def inner():
        sys.exit(7)

    await asyncio.create_task(inner())


async def stop_the_loop():
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.01)
    return "went on"


def recurse():
    return recurse()


def long_text(n):
    raise ValueError("x" * n)


def returns_awaitable(value):
    return anap(value)


@types.coroutine
def old_coroutine():
    yield from asyncio.sleep(0).__await__()
    return "old"


class CallableObject:
    async def __call__(self, value):
        await asyncio.sleep(0)
        return [value]

    def method(self, value):
        return (value,)

    @staticmethod
    def static(value):
        return {value}


an_object = CallableObject()
part = functools.partial(run, "partial")
apart = functools.partial(anap, 0)
not_callable = 3
a_lambda = lambda value: value + 1  # noqa: E731


def generator():
    yield 1


async def async_generator():
    yield 1


def big(n):
    return b"x" * n


async def abig(n):
    return b"x" * n


def thread_name():
    return threading.current_thread() is threading.main_thread()


async def on_main_thread():
    return threading.current_thread() is threading.main_thread()


def pid():
    return os.getpid()


def call_id_inside():
    from agentix import context

    return context.call_id()


async def call_id_in_children():
    from agentix import context

    async def inner():
        return context.call_id()

    a = await asyncio.create_task(inner())
    b = await asyncio.to_thread(context.call_id)
    c = contextvars.copy_context().run(context.call_id)
    return [a, b, c]


def surroundings():
    from agentix import context

    return {"baggage": context.baggage(), "traceparent": context.traceparent(), "call_id": context.call_id()}


def module_names():
    return [n for n in ("asyncio", "json", "uuid", "decimal", "dataclasses", "typing", "inspect") if n in sys.modules]


def path_and_env():
    return {"path": sys.path[:3], "env": {k: v for k, v in os.environ.items() if k.startswith("AGENTIX_")}, "cwd": os.getcwd()}


# --- logging -----------------------------------------------------------------------------


def log_one(message, *args):
    log.info(message, *args)


def log_kinds():
    log.debug("not seen")
    log.warning("with extra", extra={"user": "ada", "odd": {1: {2, 3}}, "when": object(), "_private": 1})
    try:
        fail("boo")
    except ValueError:
        log.exception("it failed", stack_info=True)
    log.info("bad %d", "format")
    logging.getLogger("agentix.sio.x").warning("never forwarded")


def log_many(count, threads):
    def work(number):
        mine = logging.getLogger(f"t{number}")
        for i in range(count):
            mine.info("%d", i)

    from contextvars import copy_context

    all_ = [threading.Thread(target=copy_context().run, args=(work, n)) for n in range(threads)]
    for t in all_:
        t.start()
    for t in all_:
        t.join()
    return "done"


def log_after_reconfiguration():
    logging.basicConfig(level=logging.INFO, force=True)
    log.info("after basicConfig")
    from logging.config import dictConfig

    dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"console": {"class": "logging.StreamHandler"}},
            "root": {"handlers": ["console"], "level": "INFO"},
        }
    )
    log.info("after dictConfig")
    apart = logging.getLogger("apart")
    apart.propagate = False
    apart.addHandler(logging.StreamHandler())
    apart.warning("only on stderr")


def log_surrogate():
    log.info("bad \ud800 text", extra={"k\ud800": "v\ud800"})


def log_and_die(message, how):
    log.info(message)
    die(how)


def log_huge():
    log.info("x" * 3_000_000, extra={"text": ["y" * 100_000] * 1000})
    log.info("many", extra={"many": list(range(100_000))})


# --- output ------------------------------------------------------------------------------


def die(how):
    if how == "exit":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL)


def print_and_die(text, how):
    print(text)
    die(how)


def print_lines(name, count):
    for i in range(count):
        print(name, i)


def print_partial(text):
    print(text, end="")
    sys.stderr.write("err " + text)


def print_raw(text):
    sys.stdout.buffer.write(text.encode())
    os.write(1, b"raw fd\n")
    subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    subprocess.run([sys.executable, "-c", "print('by fileno')"], check=True, stdout=sys.stdout)


def print_redirected(path):
    saved = os.dup(1)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.dup2(fd, 1)
    try:
        print("into the file")
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(fd)
    print("back again")


def print_steps(path):
    for i in range(3):
        print(f"{path[-1]}{i}-", end="")
        time.sleep(0.02)
    print("end")


def print_nonblocking(size):
    os.set_blocking(1, False)
    print("x" * size)
    return size


def stream_facts():
    return [
        isinstance(sys.stdout, __import__("io").TextIOWrapper),
        sys.stdout.fileno(),
        sys.stdout.isatty(),
        sys.stdout.encoding,
        sys.stdout.line_buffering,
        sys.stdin.read(),
    ]


# --- forks -------------------------------------------------------------------------------


def fork(mode):
    pid = os.fork()
    if pid == 0:
        log.warning("logged in the child")
        print("printed in the child")
        if mode == "raise":
            raise ValueError("in the child")
        if mode == "exit":
            sys.exit(5)
        return "child's value"
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


async def afork(mode):
    return fork(mode)


def fork_and_linger(seconds):
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)
    return os.getpid()


def multiprocess(n, method):
    import multiprocessing

    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(abs, range(-n, 0))


async def async_subprocess():
    process = await asyncio.create_subprocess_exec("sh", "-c", "echo out; exit 3", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return [out, process.returncode]


def segfault():
    import ctypes

    ctypes.string_at(0)


def close_descriptors():
    os.closerange(3, 1000)


def threads_refused(n):
    """Make the system refuse threads, as a pids limit does."""
    real = threading.Thread.start

    def start(self):
        raise RuntimeError("can't start new thread")

    threading.Thread.start = start if n else real
    if n:
        timer = threading.Thread(target=lambda: None)
        del timer


async def alarm_while_logging(n):
    """Signal handlers that raise at any moment while records are written on the main thread."""
    armed = [False]

    def handler(*_):
        if armed[0]:
            armed[0] = False
            raise TimeoutError("alarm")

    hits = 0
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    for i in range(n):
        try:
            armed[0] = True
            log.info("%d", i)
            armed[0] = False
        except TimeoutError:
            hits += 1
    armed[0] = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    return hits


async def raise_in_the_loop():
    """A signal handler that raises inside the loop's own code, while a task waits."""

    def handler(*_):
        raise TimeoutError("alarm")

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    await asyncio.sleep(0.2)
    return "survived"


def exec_child_fds():
    code = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, close_fds=False)
    return out.stdout.decode()


def write_at_exit(path):
    import atexit

    atexit.register(lambda: open(path, "w").close())


async def stubborn(path):
    log.info("started")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)
        log.info("cleaned up")
        with open(path, "w") as f:
            f.write("cleaned up")
    return "late value"
