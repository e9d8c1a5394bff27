"""The dashboard of a running cluster in a real browser: live figures, both colour schemes, the keyboard.
Screenshots stay in build/screenshots."""
import json
import shutil
import urllib.request

import pytest
from harness import ROOT, Cluster, wait_for, words
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

SCREENSHOTS = ROOT / "build" / "screenshots"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("dashboard"), prefill=1, decode=2) as running:
        for turn in range(4):
            for _ in running.stream(words(60, seed=turn), 12):
                pass
        yield running


@pytest.fixture(scope="module")
def browser():
    for program in ("chromium", "chromedriver"):
        assert shutil.which(program), f"{program} is missing: tools/setup --tests installs it"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                     "--window-size=1200,1500"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def text(browser, selector):
    """By script: the page replaces its elements every second, under the hands of a driver."""
    return browser.execute_script(
        "const found = document.querySelector(arguments[0]); return found ? found.textContent : ''", selector)


def count(browser, selector):
    return browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


def test_the_page_shows_the_running_cluster(cluster, browser):
    browser.get(f"http://{cluster.admin('gateway')}/")
    wait_for("the nodes on the page", lambda: "decode-1" in text(browser, "#pools"))
    for name in ("prefill-0", "decode-0", "decode-1"):
        assert name in text(browser, "#pools")
    assert "ready" in text(browser, "#state") and "smollm2-135m-instruct" in text(browser, "#state")
    assert count(browser, "#requests tbody tr") == 4
    assert count(browser, "#pools path") > 0, "no line between the pools"
    # Figures of the last minute, once the page has seen requests pass.
    for turn in range(3):
        for _ in cluster.stream(words(60, seed=100 + turn), 12):
            pass
    wait_for("latencies of the default tier",
             lambda: "%" in text(browser, "#latency tbody tr:nth-child(3)"))
    wait_for("seven requests", lambda: count(browser, "#requests tbody tr") == 7)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.save_screenshot(str(SCREENSHOTS / f"dashboard-{scheme}.png"))
        paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(20, 24, 27)") == (scheme == "dark"), paper


# What sticks out: of the window, of its card among the pools, of its table's frame (which may be scrolled).
STICKS_OUT = """
const out = [];
if (document.documentElement.scrollWidth > innerWidth) out.push("the page is wider than the window");
const cards = [...document.querySelectorAll("#pools rect[rx]")].map(card => card.getBoundingClientRect());
for (const text of document.querySelectorAll("#pools text")) {
  const box = text.getBoundingClientRect();
  if (!cards.some(card => box.left >= card.left && box.right <= card.right && box.top >= card.top && box.bottom <= card.bottom))
    out.push("outside of its node: " + text.textContent);
}
for (const cell of document.querySelectorAll("#latency td:nth-child(n+3)"))  // as long as they get
  cell.textContent = cell.matches(":last-child") ? "98.7 % !" : "12.34 s";
const table = document.querySelector("#latency"), frame = table.parentElement;
if (table.scrollWidth > frame.clientWidth) out.push("latencies are cut");
for (const svg of document.querySelectorAll("#one svg, #trends svg")) {
  const frame = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1) out.push("cut: " + text.textContent);
    if (box.height < 9) out.push("too small to read: " + text.textContent);
  }
}
return out"""


@pytest.fixture
def sized(browser):
    def resize(width):
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": 2400, "deviceScaleFactor": 1, "mobile": width < 600})
    yield resize
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("width", [1280, 390])
def test_everything_fits_and_can_be_read(cluster, browser, sized, width):
    sized(width)
    browser.get(f"http://{cluster.admin('gateway')}/")
    wait_for("the requests", lambda: count(browser, "button.row") > 0)
    browser.execute_script("document.querySelector('button.row').click()")
    wait_for("its phases", lambda: count(browser, "#one svg") == 1)
    assert browser.execute_script(STICKS_OUT) == []
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})
        browser.save_screenshot(str(SCREENSHOTS / f"dashboard-{width}-{scheme}.png"))


def test_what_is_empty_says_so(browser, tmp_path):
    with Cluster(tmp_path, prefill=0, decode=1, config={"decode": {"local_prefill_max_tokens": 1048576}}) as quiet:
        browser.get(f"http://{quiet.admin('gateway')}/")
        wait_for("the node", lambda: "decode-0" in text(browser, "#pools"))
        assert "No prefill node is here." in text(browser, "#pools")
        assert "No request has ended yet." in text(browser, "#requests")
        assert text(browser, "#trends").count("none since this page was opened") == 3


def test_the_keyboard_opens_a_request(cluster, browser):
    browser.get(f"http://{cluster.admin('gateway')}/")
    wait_for("the requests", lambda: count(browser, "button.row") > 0)
    ActionChains(browser).send_keys(Keys.TAB).perform()
    chosen = browser.execute_script("return document.activeElement.dataset.id")
    assert chosen, "the first stop of the keyboard is not a request"
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    wait_for("its phases", lambda: chosen in text(browser, "#one"))
    label = browser.execute_script("return document.querySelector('#one svg').getAttribute('aria-label')")
    assert all(phase in label for phase in ("queue", "prefill", "transfer", "decode")), label
    assert browser.execute_script("return document.activeElement.dataset.id") == chosen
    browser.save_screenshot(str(SCREENSHOTS / "dashboard-request.png"))


def test_nothing_is_fetched_elsewhere_and_no_error_is_logged(cluster, browser):
    asked = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)")
    host = f"http://{cluster.admin('gateway')}/"
    assert asked and all(name.startswith(host) for name in asked), asked
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_no_text_of_a_prompt_is_on_it(cluster):
    canary = "canary-4711-words"
    cluster.complete(canary, 4)
    with urllib.request.urlopen(f"http://{cluster.admin('gateway')}/dashboard/data") as answer:
        data = answer.read().decode()
    assert canary not in data and len(json.loads(data)["requests"]) > 0


def test_a_dead_pool_is_seen(cluster, browser):
    browser.get(f"http://{cluster.admin('gateway')}/")
    cluster["prefill-0"].kill()
    wait_for("the state", lambda: "not ready" in text(browser, "#state"))
    assert browser.title.startswith("!")
    cluster["prefill-0"].start()
    wait_for("ready again", lambda: "not ready" not in text(browser, "#state"), limit=90)
