"""Right answers, and honestly wrong ones, with all the noise and all the style that people bring along."""

from tests.batch.bank import STUBS, entry

HONEST = [
    entry("plain"),
    entry("warnings", before="import warnings\nwarnings.warn('careful')\n", points={"halve": 2},
          halve="import warnings\ndef halve(x):\n    warnings.warn('half!', DeprecationWarning)\n    return x / 2"),
    entry("prints", points={"halve": 2},
          halve="import sys, os\ndef halve(x):\n    print('x =', x)\n    print('oops', file=sys.stderr)\n"
          "    os.write(2, b'raw')\n    return x / 2"),
    entry("progress_bars", points={"halve": 2},
          halve="from tqdm import tqdm\nfrom tqdm.auto import trange\ndef halve(x):\n"
          "    for _ in tqdm(range(50)): pass\n    for _ in trange(3): pass\n    return x / 2"),
    entry("plots", after="%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n",
          points={"halve": 2},
          halve="import matplotlib.pyplot as plt\ndef halve(x):\n    plt.figure(); plt.plot([x]); plt.show()\n"
          "    return x / 2"),
    entry("pip_and_shell", before="%pip install --quiet einops\n!ls -la\n!pip install numpy\nfiles = !ls\n?print\n"),
    entry("time_magics", points={"halve": 2}, before="%%time\nfactor = 2\n", after="%timeit 1 + 1\nx = 5 % 3\n",
          halve="%load_ext autoreload\ndef halve(x):\n    return x / factor\n%time halve(3.0)"),
    entry("written_module", before="%%writefile helper.py\ndef half(x):\n    return x / 2\n", points={"halve": 2},
          halve="import helper\ndef halve(x): return helper.half(x)"),
    entry("bash_cell", before="%%bash\necho hello\nfor i in 1 2; do echo $i; done\n"),
    entry("slow_import", before="import time\ntime.sleep(1.5)\nimport torch.nn.utils.parametrize\n"),
    entry("numpy_instead_of_torch", points={"scale_rows": 3},
          scale_rows="import numpy as np\ndef scale_rows(x, factors):\n    return x.numpy() * factors.numpy()[:, None]"),
    entry("numpy_scalar", halve="import numpy as np\ndef halve(x): return np.float64(x) / 2", points={"halve": 2}),
    entry("numpy_integers", points={"describe_sizes": 2},
          describe_sizes="import numpy as np\ndef describe_sizes(shape):\n"
          "    return {'elements': np.prod(shape, dtype=np.int64), 'dimensions': np.int64(len(shape))}"),
    entry("gradients_left_on", points={"scale_rows": 3},
          scale_rows="def scale_rows(x, factors):\n    return x.requires_grad_() * factors[:, None]"),
    entry("not_contiguous", points={"scale_rows": 3},
          scale_rows="def scale_rows(x, factors): return (x.T * factors).T"),
    entry("writes_to_its_inputs", points={"scale_rows": 3},
          scale_rows="def scale_rows(x, factors):\n    x *= factors[:, None]\n    return x"),
    entry("lambda_and_partial", points={"halve": 2, "scale_rows": 3}, halve="halve = lambda x: x / 2",
          scale_rows="import functools, torch\n"
          "scale_rows = functools.partial(lambda f, x, y: f('ij,i->ij', x, y), torch.einsum)"),
    entry("wrapped_in_a_class", points={"halve": 2},
          halve="class Half:\n    def __call__(self, x): return x / 2\nhalve = Half()"),
    entry("dataclass_and_cache", points={"Counter": 2, "halve": 2},
          Counter="from dataclasses import dataclass\n@dataclass\nclass Counter:\n    n: int\n"
          "    def up(self, by: int) -> int:\n        self.n += by\n        return self.n",
          halve="import functools\n@functools.lru_cache\ndef halve(x: float) -> float:\n    return x / 2"),
    entry("solution_in_another_cell", points={"halve": 2}, after="def halve(x):\n    return x / 2\n",
          halve=STUBS["halve"]),
    entry("solution_above_the_stub", points={"halve": 2}, before="def halve(x):\n    return x / 2\n",
          halve=STUBS["halve"]),
    entry("helper_in_a_later_cell", points={"halve": 2}, after="def helper(x):\n    return x / 2\n",
          halve="def halve(x): return helper(x)"),
    entry("extra_cells_that_fail", before="undefined_name\n", after="1 / 0\n"),
    entry("extra_cell_with_a_syntax_error", before="def broken(:\n", after="print 'python 2'\n"),
    entry("calls_check_and_friends", after="from course_lib import check, hint, progress, solution\ncheck(halve)\n"
          "hint('halve')\nprogress()\nassert check(halve) is None\n"),
    entry("tests_of_its_own", points={"halve": 2},
          halve="def halve(x): return x / 2\nassert halve(2) == 1\nassert halve(3) == 1, 'my test is wrong'"),
    entry("input_and_display",
          after="name = input('your name?')\ndisplay(name)\nget_ipython().run_line_magic('who', '')\n"),
    entry("top_level_await", before="import asyncio\nawait asyncio.sleep(0)\ntwo = 2\n", points={"halve": 2},
          halve="def halve(x): return x / two"),
    entry("threads", points={"scale_rows": 3},
          scale_rows="import concurrent.futures as cf, torch\ndef scale_rows(x, factors):\n"
          "    with cf.ThreadPoolExecutor(4) as pool:\n"
          "        return torch.stack(list(pool.map(lambda p: p[0] * p[1], zip(x, factors))))"),
    entry("multiprocessing", points={"halve": 2},
          halve="import multiprocessing as mp\ndef _half(x): return x / 2\ndef halve(x):\n"
          "    with mp.get_context('fork').Pool(1) as pool: return pool.map(_half, [x])[0]"),
    entry("data_loader", points={"scale_rows": 3},
          scale_rows="import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
          "def scale_rows(x, factors):\n"
          "    rows = [a * b for a, b in DataLoader(TensorDataset(x, factors), batch_size=None)]\n"
          "    return torch.stack(rows)"),
    entry("default_dtype_changed", before="import torch\ntorch.set_default_dtype(torch.float64)\ntorch.manual_seed(1)\n"),
    entry("inference_mode", points={"scale_rows": 3},
          scale_rows="import torch\n@torch.inference_mode()\ndef scale_rows(x, factors): return x * factors[:, None]"),
    entry("uses_a_file", points={"halve": 2},
          halve="import tempfile, pathlib\ndef halve(x):\n    with tempfile.TemporaryDirectory() as top:\n"
          "        pathlib.Path(top, 'a').write_text(str(x))\n"
          "        return float(pathlib.Path(top, 'a').read_text()) / 2"),
    entry("umlauts_and_emoji", points={"halve": 2},
          halve="def halve(größe):\n    '''Die Hälfte 😀 一半'''\n    hälfte = größe / 2\n    return hälfte"),
    entry("windows_line_ends", points={"halve": 2}, halve="def halve(x):\r\n    return x / 2\r\n"),
    entry("renamed_parameter_and_types", points={"halve": 2},
          halve="from __future__ import annotations\ndef halve(value: float | None = None) -> float:\n"
          "    return value / 2"),
    entry("main_guard", points={"halve": 2},
          halve="def halve(x): return x / 2\nif __name__ == '__main__':\n    print(halve(2))"),
    entry("pickles_and_inspects", points={"halve": 2},
          halve="import inspect, pickle\ndef halve(x):\n    assert 'inspect' in inspect.getsource(halve)\n"
          "    return pickle.loads(pickle.dumps(halve)) is halve and x / 2"),
    entry("optimizer_and_backward", points={"scale_rows": 3},
          scale_rows="import torch\ndef scale_rows(x, factors):\n    w = torch.nn.Parameter(torch.ones(3))\n"
          "    o = torch.optim.AdamW([w]); w.sum().backward(); o.step()\n    return x * factors[:, None]"),
    entry("builds_on_an_exercise_not_solved", points={"scale_rows": 3}, halve=STUBS["halve"],
          scale_rows="from course_lib import solved_or_reference\nhalve = solved_or_reference(halve)\n"
          "def scale_rows(x, factors): return halve(2.0 * x) * factors[:, None]"),
    entry("all_stubs", **STUBS),
    entry("one_raises", halve="def halve(x):\n    y = x / 2\n    return y + undefined"),
    entry("two_are_wrong", halve="def halve(x): return x * 2", describe_sizes=
          "def describe_sizes(shape):\n    return {'dimensions': -1, 'elements': sum(shape)}"),
    entry("half_of_the_cases", points={"describe_sizes": 0.5},
          describe_sizes="def describe_sizes(shape):\n    return {'dimensions': len(shape), 'elements': 1}"),
    entry("wrong_in_one_later_case", halve="def halve(x): return x / 2 if x < 900 else x"),
]  # fmt: skip
