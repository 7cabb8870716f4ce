import subprocess
import sys


def test_without_torch_the_room_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tokenspace\n"
        "try:\n    tokenspace.nn\n"
        "except tokenspace.MissingExtra as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "tokenspace.nn needs packages that are not installed; run: pip install 'torch>=2.13' 'numba>=0.61'\n"
    )
