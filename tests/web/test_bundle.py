import pytest

from tokenspace.web.bundle import bundled, inline


def test_each_module_comes_once_and_before_who_needs_it():
    modules = {
        "main.js": 'import { a } from "./a.js";\nimport {\n  b,\n  c as d,\n} from "./b.js";\na(b, d);\n',
        "a.js": 'import { b } from "./b.js";\nexport async function a() {}\n',
        "b.js": "export const b = 1;\nexport class c {}\nconst hidden = 2;\n",
        "unused.js": "export const x = 1;",
    }
    script = bundled(modules, "main.js")
    places = [script.index(f'modules["{name}"] = ') for name in ("b.js", "a.js", "main.js")]
    assert places == sorted(places)
    assert script.count('modules["b.js"] = ') == 1
    assert "unused.js" not in script
    assert "return { b, c };" in script
    assert 'const { b, c: d } = modules["b.js"];' in script


@pytest.mark.parametrize(
    "source",
    [
        "export default 1;",
        'export { a } from "./a.js";',
        'import * as a from "./a.js";',
        'import a from "./a.js";',
        'import "./a.js";',
        "export var a = 1;",
    ],
)
def test_other_forms_are_refused(source):
    with pytest.raises(ValueError, match="can't be bundled"):
        bundled({"main.js": source, "a.js": ""}, "main.js")


def test_circles_and_missing_modules_are_refused():
    circle = {"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";'}
    with pytest.raises(ValueError, match=r"a\.js -> b\.js -> a\.js"):
        bundled(circle, "a.js")
    with pytest.raises(ValueError, match=r"no module b\.js, imported along a\.js"):
        bundled({"a.js": circle["a.js"]}, "a.js")


def test_nothing_inlined_ends_its_element():
    script = inline("'</script>' + '</SCRIPT >' + '<!-- <script>' + a </script/ + '\\\\x3c/script>'\r\n")
    assert "\r" not in script
    lowered = script.lower()
    for ending in ("</script", "<!--", "<script"):
        assert ending not in lowered
