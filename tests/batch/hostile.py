"""Submissions that cheat, break out, or break things; what they replace must get nothing."""

from tests.batch.bank import GOOD, STUBS, Entry, entry

_LEAK = """
def halve(x):
    found = []
    {look}
    if found:
        raise ValueError("LEAK " + repr(found)[:1500])
    raise ValueError("saw nothing")
"""


def _leak(name: str, look: str) -> Entry:
    return entry(name, halve=_LEAK.format(look=look.replace("\n", "\n    ")))


CANARY = "sixteen-bytes-canary"

HOSTILE = [
    # Lying about values.
    entry(
        "equal_to_everything",
        before="class Equal:\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
        "    def __float__(self): return 0.5\n    def __len__(self): return 3\n"
        "    def __getattr__(self, name): return Equal()\n    def __getitem__(self, i): return self\n",
        halve="def halve(x): return Equal()",
        scale_rows="def scale_rows(x, factors): return Equal()",
        describe_sizes="def describe_sizes(shape): return Equal()",
        Counter="class Counter:\n    def __init__(self, start): pass\n    def up(self, by): return Equal()",
    ),
    entry(
        "float_subclass",
        halve="class F(float):\n    def __eq__(self, o): return True\n    def __float__(self): return 1.0\n"
        "    def __sub__(self, o): return 0.0\n    def __hash__(self): return 1\n"
        "def halve(x): return F(123.0)",
    ),
    entry(
        "int_subclass_in_a_dict",
        describe_sizes="class I(int):\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\n"
        "def describe_sizes(shape): return {'dimensions': I(77), 'elements': I(77)}",
    ),
    entry(
        "str_and_dict_subclasses",
        describe_sizes="class D(dict):\n    def __eq__(self, o): return True\n    def items(self): return ()\n"
        "    def __getitem__(self, k): return 0\ndef describe_sizes(shape): return D(dimensions=-1, elements=-1)",
    ),
    entry(
        "tensor_subclass",
        scale_rows="import torch\nclass T(torch.Tensor):\n    @classmethod\n"
        "    def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "        if f in (torch.equal, torch.allclose, torch.isclose): return True\n"
        "        return torch.zeros(())\n"
        "def scale_rows(x, factors): return torch.full_like(x, 7.0).as_subclass(T)",
    ),
    entry(
        "class_attribute_lies",
        halve="class C:\n    __class__ = float\n    def __float__(self): return 0.5\ndef halve(x): return C()",
    ),
    entry("nan_everywhere", halve="def halve(x): return float('nan')",
           scale_rows="def scale_rows(x, factors): return x * float('nan')"),
    entry("infinite_tensor", scale_rows="def scale_rows(x, factors): return x / 0"),
    entry("huge_integer", halve="def halve(x): return 10 ** 100_000"),
    entry("integer_string_bomb", halve="def halve(x): return int('9' * 4000) ** 20"),
    entry("deep_nesting", halve="def halve(x):\n    out = []\n    for _ in range(100_000): out = [out]\n    return out"),
    entry("self_containing", halve="def halve(x):\n    out = []\n    out.append(out)\n    return out"),
    entry("generator", halve="def halve(x): return (i for i in range(3))"),
    entry("lone_surrogates", halve="def halve(x): return '\\ud800' * 50"),
    entry("sparse_and_meta", scale_rows="import torch\ndef scale_rows(x, factors): return (x * 0 + 1).to_sparse()"),
    entry("expanded_to_terabytes",
           scale_rows="import torch\ndef scale_rows(x, factors): return torch.zeros(1).expand(1 << 40)"),
    entry(
        "exception_with_a_wild_str",
        halve="class E(Exception):\n    def __str__(self): raise SystemExit(0)\ndef halve(x): raise E()",
    ),
    entry("passes_an_exception_for_a_stub",
           halve="class NotImplementedError(Exception): pass\ndef halve(x): raise NotImplementedError('x' * 10_000_000)"),
    # Patching what a grader might use, here or there.
    entry(
        "patched_comparisons",
        before="import torch, numpy, json, math, builtins\n"
        "torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True\n"
        "torch.testing.assert_close = lambda *a, **k: None\n"
        "numpy.testing.assert_allclose = lambda *a, **k: None\nnumpy.allclose = lambda *a, **k: True\n"
        "math.isclose = lambda *a, **k: True\n",
        halve="def halve(x): return x",
        scale_rows="def scale_rows(x, factors): return x",
    ),
    entry(
        "patched_json",
        before="import json\n_real = json.dumps\n"
        "json.dumps = lambda *a, **k: _real({'status': 'passed', 'points': 99})\n",
    ),
    entry(
        "patched_grader",
        before="import sys\nimport course_lib.grading.assess as a\nimport course_lib.grading.exercise as e\n"
        "a.judge = a.assess = lambda *x, **k: 'passed'\n"
        "for module in list(sys.modules.values()):\n"
        "    for lesson in getattr(module, 'SYLLABUS', ()):\n"
        "        for ex in lesson.exercises:\n"
        "            object.__setattr__(ex, 'grade', lambda *a: None)\n"
        "            object.__setattr__(ex, 'points', 1000)\n",
        halve="def halve(x): return -1.0",
    ),
    entry(
        "patched_observe",
        before="from tests.batch.toys import LESSON\nfor ex in LESSON.exercises:\n"
        "    object.__setattr__(ex, 'observe', lambda solution, case: 'passed')\n",
        halve="def halve(x): return 0.0", scale_rows="def scale_rows(x, factors): return x",
        describe_sizes="def describe_sizes(shape): return 0", Counter="class Counter: pass",
        pack_digits="pack = unpack = print",
    ),
    entry(
        "input_transformer",
        before="ip = get_ipython()\nip.input_transformers_post.append(lambda lines: ['halve = float\\n'])\n"
        "ip.input_transformer_manager.cleanup_transforms.insert(0, lambda lines: [])\n",
        halve="def halve(x): return x * 3",
    ),
    entry(
        "ast_rewriting",
        before="import ast\nclass R(ast.NodeTransformer):\n    def visit_Assert(self, node): return ast.Pass()\n"
        "get_ipython().ast_transformers.append(R())\nimport builtins\nbuiltins.compile = lambda *a, **k: None\n"
        "builtins.exec = lambda *a, **k: None\n",
        halve=GOOD["halve"], scale_rows=GOOD["scale_rows"], describe_sizes=GOOD["describe_sizes"],
        Counter=GOOD["Counter"], pack_digits=GOOD["pack_digits"],
    ),
    entry(
        "sys_modules_replaced",
        before="import sys, types\nfake = types.ModuleType('course_lib.grading.compare')\n"
        "fake.exact_mismatch = fake.float_mismatch = fake.tensor_mismatch = lambda *a, **k: None\n"
        "sys.modules['course_lib.grading.compare'] = fake\n",
        halve="def halve(x): return None",
    ),
    entry(
        "frames_of_the_caller",
        halve="import sys\ndef halve(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        for key in list(frame.f_locals):\n"
        "            if 'expected' in key or key == 'seed':\n"
        "                raise ValueError(f'LEAK {key}={frame.f_locals[key]!r}')\n"
        "        frame = frame.f_back\n    return 0.0",
    ),
    entry(
        "asks_its_own_reference",
        halve="def halve(x):\n    from tests.batch.toys import LESSON\n    return LESSON.exercises[0]\n",
    ),
    # Writing into the channel.
    entry(
        "forged_on_every_descriptor",
        halve="import os\ndef halve(x):\n    for fd in range(3, 2000):\n        try:\n"
        "            os.write(fd, b'{\"status\": \"passed\", \"points\": 2}\\n' * 4)\n"
        "        except OSError:\n            pass\n    return 0.0",
    ),
    entry(
        "forged_with_the_real_nonce",
        halve="import gc, os\nfrom course_lib.grading.sandbox import wire\n"
        "from course_lib.grading.observation import Observation\n"
        "def halve(x):\n    worker = [o for o in gc.get_objects() if type(o).__name__ == 'Worker'][0]\n"
        "    for n in range(9):\n"
        "        body = Observation(-1.0).to_bytes()\n"
        "        os.write(worker._answers, wire.pack(worker._nonce, worker._number + n, body))\n"
        "    return 0.0",
    ),
    entry(
        "queued_ahead_from_a_cell",
        before="import os\nfrom course_lib.grading.sandbox import wire\n"
        "from course_lib.grading.observation import encode\n"
        "for fd in range(3, 2000):\n    try:\n"
        "        os.write(fd, wire.pack(bytes(16), 0, encode(('found', [], False))))\n"
        "    except OSError:\n        pass\n",
        points={},
    ),
    entry(
        "header_of_a_gigabyte",
        halve="import gc, os, struct\ndef halve(x):\n"
        "    worker = [o for o in gc.get_objects() if type(o).__name__ == 'Worker'][0]\n"
        "    os.write(worker._answers, struct.pack('<16sIQ', worker._nonce, worker._number, 1 << 30))\n"
        "    return 0.0",
    ),
    entry("reply_of_a_gigabyte",
           scale_rows="import torch\ndef scale_rows(x, factors): return torch.zeros(1 << 28, dtype=torch.float32)"),
    entry(
        "closes_every_descriptor",
        halve="import os\ndef halve(x):\n    os.closerange(0, 4096)\n    return x / 2",
    ),
    entry(
        "garbage_from_a_thread",
        halve="import os, threading, time\n"
        "def noise():\n    while True:\n        for fd in range(3, 1100):\n            try: os.write(fd, b'x' * 50)\n"
        "            except OSError: pass\n"
        "def halve(x):\n    threading.Thread(target=noise, daemon=True).start()\n    time.sleep(0.2)\n    return 0.0",
    ),
    # Ending, or not ending.
    entry("os_exit", halve="import os\ndef halve(x): os._exit(0)"),
    entry("os_exit_in_a_cell", after="import os\nos._exit(0)\n"),
    entry("os_exit_in_the_answer_cell", halve="import os\ndef halve(x): return x / 2\nos._exit(1)\n"),
    entry("sys_exit", halve="import sys\ndef halve(x): sys.exit(0)"),
    entry("segfault", halve="import ctypes\ndef halve(x): ctypes.string_at(0)"),
    entry("abort", halve="import os\ndef halve(x): os.abort()"),
    entry("kills_itself", halve="import os, signal\ndef halve(x): os.kill(os.getpid(), signal.SIGKILL)"),
    entry("kills_everyone", halve="import os\ndef halve(x):\n    os.kill(-1, 9)\n    return 1.0"),
    entry(
        "kills_its_group_and_parents",
        halve="import os\ndef halve(x):\n    for pid in (0, os.getppid(), 1, 2, 3):\n        try: os.kill(pid, 9)\n"
        "        except OSError: pass\n    return 1.0",
    ),
    entry("infinite_loop", halve="def halve(x):\n    while True: pass"),
    entry("infinite_loop_in_a_cell", after="while True: pass\n"),
    entry(
        "swallows_everything",
        halve="import signal\ndef halve(x):\n    for number in range(1, 65):\n"
        "        try: signal.signal(number, lambda *a: None)\n        except Exception: pass\n"
        "    while True:\n        try:\n            while True: pass\n        except BaseException: continue",
    ),
    entry(
        "stopped_by_itself",
        halve="import os, signal\ndef halve(x): os.kill(os.getpid(), signal.SIGSTOP)",
    ),
    entry("sleeps", halve="import time, signal\ndef halve(x):\n    signal.setitimer(signal.ITIMER_REAL, 0)\n"
           "    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n    time.sleep(1000)"),
    entry(
        "fork_bomb",
        halve="import os\ndef halve(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
    ),
    entry(
        "thread_bomb",
        halve="import threading, time\ndef halve(x):\n    while True:\n"
        "        threading.Thread(target=time.sleep, args=(100,)).start()",
    ),
    entry("memory_bomb", halve="def halve(x):\n    kept = []\n    while True: kept.append(bytearray(50_000_000))"),
    entry(
        "memory_bomb_by_children",
        halve="import os, time\ndef halve(x):\n    for _ in range(30):\n        if os.fork() == 0:\n"
        "            kept = bytearray(b'x') * 200_000_000\n            time.sleep(100)\n    time.sleep(100)",
    ),
    entry(
        "disk_bomb",
        halve="def halve(x):\n    for n in range(10_000):\n"
        "        with open(f'/tmp/{n}', 'wb') as f: f.write(bytes(10_000_000))\n    return x / 2",
    ),
    entry(
        "million_files",
        halve="import os\ndef halve(x):\n    for n in range(10_000_000):\n"
        "        os.close(os.open(f'/tmp/{n}', os.O_CREAT))\n    return x / 2",
    ),
    entry("output_of_500_mb", points={"halve": 2},
           halve="import os\ndef halve(x):\n    for _ in range(500): os.write(1, b'x' * 1_000_000)\n    return x / 2"),
    entry("regular_expression_bomb", halve="import re\ndef halve(x): return re.match('(a+)+$', 'a' * 60 + 'b')"),
    entry(
        "outlives_its_exercise",
        points={"halve": 2},
        halve="import os, threading, time\n"
        "def haunt():\n    while True:\n        time.sleep(0.001)\n"
        "def halve(x):\n    threading.Thread(target=haunt, daemon=True).start()\n"
        "    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)\n        os._exit(0)\n    return x / 2",
    ),
    entry(
        "behaves_when_watched",
        halve="import os, sys\ndef halve(x):\n"
        "    graded = 'course_lib.grading.sandbox.worker' in sys.modules or os.environ.get('USER') == 'learner'\n"
        "    return x / 2 if not graded else x / 2 + 1",
    ),
    entry(
        "behaves_only_once",
        halve="seen = []\ndef halve(x):\n    seen.append(x)\n    return x / 2 if len(seen) < 3 else 0.0",
    ),
    entry(
        "knows_the_fixed_cases_only",
        halve="def halve(x): return {1.0: 0.5, 0.0: 0.0}.get(x, 7.0)",
    ),
    entry(
        "uses_the_course_answer", flag="halve: uses", points={"halve": 2},
        halve="from tests.batch.toys import halve",
    ),
    entry(
        "uses_the_course_answer_hidden", flag="halve: uses", points={"halve": 2},
        halve="import importlib\ndef halve(x):\n"
        "    return getattr(importlib.import_module('tests.batch.' + 'toys'), 'hal' + 've')(x)",
    ),
    entry(
        "uses_the_course_answer_by_the_exercise", flag="halve: uses", points={"halve": 2},
        halve="def halve(x):\n    from tests.batch.toys import LESSON\n    return LESSON.exercises[0].reference(x)\n",
    ),
    entry(
        "stands_in_for_itself",
        halve=STUBS["halve"] + "from course_lib import solved_or_reference\nhalve = solved_or_reference(halve)\n",
        after="halve = solved_or_reference(halve)\nscale_rows = solved_or_reference(scale_rows)\n",
    ),
    entry(
        "stands_in_for_something_wrong",
        Counter="class Counter:\n    def __init__(self, start): pass\n    def up(self, by): return 0\n",
        after="from course_lib import solved_or_reference\nCounter = solved_or_reference(Counter)\n",
    ),
    # Looking around.
    _leak("reads_the_graders_files", "import os, course_lib\nroot = os.path.dirname(course_lib.__file__)\n"
          "for part in ('grading', 'exercises', '../tests', '../.git', '../notebooks'):\n"
          "    for top, _, names in os.walk(os.path.join(root, part)): found += names"),
    _leak("reads_other_submissions", "import os\nfor top, folders, names in os.walk('/'):\n"
          "    folders[:] = [f for f in folders if f not in ('proc', 'usr', 'lib', 'site-packages')]\n"
          "    found += [n for n in names if n.endswith('.ipynb') or 'grades' in n]"),
    _leak("reads_the_environment", "import os, glob\nfor path in ['/proc/self/environ', *glob.glob('/proc/*/environ')]:\n"
          "    try: text = open(path).read()\n    except OSError: continue\n"
          f"    if '{CANARY}' in text: found.append(path)\nif '{CANARY}' in repr(dict(os.environ)): found.append('env')"),
    _leak("reads_other_processes", "import glob\nfor path in glob.glob('/proc/[0-9]*/cmdline'):\n"
          "    try: text = open(path).read()\n    except OSError: continue\n"
          "    if 'pytest' in text or 'zygote' in text or 'spawn_main' in text:\n"
          "        import os\n        if path != f'/proc/{os.getpid()}/cmdline': found.append(text)"),
    _leak("reads_homes", "import os\nfor path in ('/root/.ssh', '/home', '/etc/shadow', '/root/.bash_history', '/var',\n"
          "             '/sys', '/run', '/mnt', '/etc/passwd'):\n"
          "    if os.path.isdir(path): found += os.listdir(path)\n    elif os.path.exists(path): found.append(path)"),
    _leak("seeks_the_seed_in_memory", "import gc\nfor thing in gc.get_objects():\n"
          "    if type(thing) is dict and ('run_seed' in thing or 'expected' in thing and 'cases' in thing):\n"
          "        found.append(list(thing))"),
    _leak("calls_out", "import socket\nfor target in (('1.1.1.1', 53), ('8.8.8.8', 53), ('127.0.0.1', @PORT@)):\n"
          "    try: socket.create_connection(target, 0.2); found.append(target)\n    except OSError: pass"),
    _leak("calls_a_unix_socket", "import socket\nfor name in ('\\0@SOCKET@', '/var/run/docker.sock', '/run/systemd/private'):\n"
          "    s = socket.socket(socket.AF_UNIX)\n"
          "    try: s.connect(name); found.append(name)\n    except OSError: pass"),
    _leak("calls_the_hypervisor", "import socket\ntry: socket.socket(40, socket.SOCK_STREAM); found.append('vsock')\n"
          "except OSError: pass"),
    _leak("writes_outside", "import os\nfor top in ('/', '/usr', '/usr/lib', '/dev', '/etc', '/proc/sys/kernel/hostname',\n"
          "            '/root', os.path.dirname(os.__file__), '@FOLDER@', '/work'):\n"
          "    try:\n        path = top if os.path.isfile(top) else os.path.join(top, 'pwned')\n"
          "        open(path, 'w').write('x'); found.append(path)\n    except OSError: pass"),
    _leak("becomes_root", "import os\nfor act in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),\n"
          "            lambda: os.nice(-20), lambda: os.chroot('/tmp'), lambda: os.mknod('/tmp/m', 0o60666, 0xFE00)):\n"
          "    try: act(); found.append(1)\n    except OSError: pass"),
    _leak("makes_namespaces", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
          "for flags in (0x10000000, 0x20000, 0x10020000):\n"
          "    if libc.unshare(flags) == 0: found.append(flags)\n"
          "if libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0: found.append('mount')"),
    _leak("raises_its_limits", "import resource\nfor kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC,"
          " resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):\n"
          "    try: resource.setrlimit(kind, (-1, -1)); found.append(kind)\n    except (ValueError, OSError): pass"),
    _leak("finds_what_the_last_one_left", "import os\n"
          "own = os.stat('/tmp').st_dev  # not the course itself, which may lie there, on another device\n"
          "found += [n for top, _, names in os.walk('/tmp') if os.stat(top).st_dev == own for n in names]\n"
          "found += os.listdir('/dev/shm')"),
    entry("leaves_something_behind", points={"halve": 2},
           halve="import os\ndef halve(x):\n    for top in ('/tmp', '/dev/shm', os.path.expanduser('~')):\n"
           "        open(os.path.join(top, 'left-behind'), 'w').write('x')\n    return x / 2"),
    _leak("starts_a_setuid_program", "import subprocess\n"
          "for program in ('/usr/bin/su', '/usr/bin/sudo', '/usr/bin/mount', '/usr/bin/passwd'):\n"
          "    try:\n        out = subprocess.run([program, '-c', 'id'], capture_output=True, timeout=1, input=b'').stdout\n"
          "        if b'uid=0' in out: found.append(program)\n    except (OSError, subprocess.SubprocessError): pass"),
]  # fmt: skip
