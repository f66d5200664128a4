# SPDX-License-Identifier: Apache-2.0

"""Every view of the page in a real browser: data, errors, contrast, keyboard, phone width, growth."""

import re
from urllib.parse import parse_qs, urlsplit

import kit
import pytest
from playwright.sync_api import Page, expect


def name_of(view: str) -> str:
    return view.split("/")[0]


@pytest.mark.parametrize("view", kit.VIEWS)
def test_a_view_shows_its_data_with_enough_contrast_and_without_an_error(watched: kit.Watched, view: str) -> None:
    watched.open(view)
    watched.check(kit.VIEWS[view], name_of(view))


def test_the_graph_shows_rates_queues_and_the_broken_vendor(watched: kit.Watched) -> None:
    page = watched.open("graph")
    vendor = page.locator("svg.graph a.node.exporter", has_text="vendor")
    expect(vendor.locator(".box")).to_have_attribute("data-mark", "bad")
    expect(vendor.locator("title")).to_contain_text(re.compile("queue .* full: sending to"))
    edge = page.get_by_role("row", name=re.compile("^metrics otlp composite"))
    expect(edge.locator("td").nth(2)).to_have_text(re.compile("^[1-9].*/s$"))
    health = page.locator("#health")
    expect(health).to_contain_text("trouble: exporters::otlphttp/vendor")
    expect(health.get_by_role("link")).to_have_attribute("href", "#/component/exporter/otlphttp%2Fvendor")
    line = page.get_by_role("img", name=re.compile("^Received items")).locator("path")
    expect(line).to_have_attribute("d", re.compile("(L.*){3}"))
    watched.picture("graph")
    vendor.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("exporter otlphttp/vendor")
    settings = page.get_by_label("Settings")
    expect(settings).to_contain_text("endpoint")
    expect(settings).not_to_contain_text("a-secret-key")


def test_the_lines_of_the_graph_go_on_behind_a_view_without_counters(watched: kit.Watched) -> None:
    page = watched.open("graph")
    line = page.get_by_role("img", name=re.compile("^Received items")).locator("path")
    expect(line).to_have_attribute("d", re.compile("L"))

    def points() -> int:
        return (line.get_attribute("d") or "").count("L")

    before = points()
    with page.expect_request("**/status/stream**") as stream:
        page.evaluate("location.hash = '#/rules'")
    topics = parse_qs(urlsplit(stream.value.url).query)["topic"]
    assert topics == ["status/health", "rules", "alerts"]
    page.wait_for_timeout(20_000)
    page.evaluate("location.hash = '#/graph'")
    # A line has a point a second, or one less on a busy machine. Without the seconds between, it would have at most twelve
    # points more by then.
    kit.wait_for("the line", lambda: points() >= before + 15, 10)


def test_refused_items_are_counted_where_a_reader_looks_first(watched: kit.Watched) -> None:
    page = watched.open("graph")
    # The queue of the broken vendor is full in the end.
    refused = page.locator(".tile", has_text="refused").locator("strong")
    expect(refused).to_have_attribute("data-mark", "warn", timeout=180_000)
    page = watched.open("components")
    otlp = page.get_by_role("row", name=re.compile("^otlp receiver"))
    expect(otlp.locator('td[data-mark="warn"]')).to_have_text(re.compile("^[1-9]"))


def test_dropped_items_are_on_their_edge_and_in_the_ledger_by_reason(watched: kit.Watched) -> None:
    # The filter drops one of the two StatsD lines of each datagram. A slash would end the pattern of a name.
    page = watched.open("graph")
    drops = page.get_by_role("row", name=re.compile("^metrics.few uds filter")).locator("td").nth(5)
    expect(drops).to_have_text(re.compile(r"^(?!0/s)\d.*/s$"))
    expect(drops).to_have_attribute("data-mark", "bad")
    expect(page.locator("svg.graph text.drops", has_text="/s").first).to_have_text(re.compile(r"^−(?!0/s)\d.*/s$"))
    node = page.locator("svg.graph a.node.processor", has_text="filter")
    expect(node.locator("text.state")).to_have_text(re.compile(r"^[1-9]\S* dropped$"))
    tile = page.locator(".tile", has_text="dropped").locator("strong")
    expect(tile).to_have_attribute("data-mark", "bad")
    page = watched.open("ledger")
    for name in ("processors::filter@metrics.few", "all components"):
        cells = page.get_by_role("row", name=re.compile(f"^{name}")).locator("td")
        expect(cells.nth(6)).to_have_text(re.compile("^[1-9]"))
        expect(cells.nth(6)).to_have_attribute("data-mark", "bad")
        expect(cells.nth(9)).to_contain_text(re.compile(r"\bfiltered [1-9]"))
    assert watched.errors == []


def test_a_graph_fits_its_window_and_the_current_view_is_in_sight_on_a_phone(watched: kit.Watched) -> None:
    page = watched.open("graph")
    page.set_viewport_size({"width": 900, "height": 800})
    vendor = page.locator("svg.graph a.node.exporter", has_text="vendor").locator(".box")
    expect(vendor).to_be_visible()

    def fits() -> bool:
        box = vendor.bounding_box()
        return box is not None and box["x"] + box["width"] <= 900

    kit.wait_for("the graph fits", fits)
    page.set_viewport_size({"width": 360, "height": 740})
    watched.open("config")
    expect(page.locator("#views a[aria-current]")).to_be_in_viewport(ratio=1)


def numbers(page: Page) -> list[list[int]]:
    """The numbers of each row of the ledger, read at one moment."""
    rows = page.evaluate("[...document.querySelectorAll('main table')[0].tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent))")
    return [[int(cell.replace(",", "")) for cell in row[2:10]] for row in rows]


def test_the_ledger_adds_up(watched: kit.Watched) -> None:
    page = watched.open("ledger")
    expect(page.get_by_role("row", name=re.compile("^all components"))).to_be_visible()

    def of_items() -> list[list[int]]:
        found = numbers(page)
        return found if any(row[0] > 0 for row in found) else []

    rows = kit.wait_for("items", of_items)
    assert len(rows) == 8
    for entered, made, restored, left, absorbed, dropped, held, total in rows:
        assert entered + made + restored == left + absorbed + dropped + held == total
    *parts, total = rows
    assert [sum(column) for column in zip(*parts)] == total


def test_the_ledger_has_the_numbers_of_the_sender(watched: kit.Watched, gateway: kit.Gateway) -> None:
    page = watched.open("ledger")
    receivers = page.get_by_role("table", name="Receivers, items since the start")
    row = receivers.get_by_role("row", name=re.compile("^otlp logs"))
    expect(row).to_be_visible()

    def sent() -> list[int]:
        """Log records that the gateway accepted and refused, as its answers say."""
        return [answers["logs"] * kit.RECORDS for answers in (gateway.accepted, gateway.refused)]

    def shown() -> list[int]:
        cells = row.evaluate("(row) => [...row.cells].slice(2, 4).map((cell) => cell.textContent)")
        return [int(cell.replace(",", "")) for cell in cells]

    kit.wait_for("a refused request", lambda: all(sent()), 180)
    before = sent()
    kit.wait_for("the page of this moment", lambda: all(now >= then for now, then in zip(shown(), before)))
    now, after = shown(), sent()
    # One request may have no answer yet.
    assert all(now[index] <= after[index] + kit.RECORDS for index in range(2)), (now, after)


def test_rings_keep_their_order(watched: kit.Watched) -> None:
    page = watched.open("sources")
    table = page.get_by_role("table", name="NIXL rings")
    for _ in range(6):
        before = table.inner_text()
        kit.wait_for("the next page of sources", lambda: table.inner_text() != before)
        assert table.locator("tbody th").all_inner_texts() == ["rank_0", "rank_1"]
    assert watched.errors == []


def test_composites_and_their_lines_change_and_hostile_labels_are_text(watched: kit.Watched) -> None:
    page = watched.open("composites")
    row = page.get_by_role("row", name=re.compile("llama"))
    expect(row).to_contain_text("fresh")
    line = row.locator("svg .line")
    expect(line).to_have_attribute("d", re.compile("L.*L"))
    expect(page.get_by_role("row", name=re.compile("<img src=x"))).to_be_visible()
    page.get_by_label("Filter: Composites").fill("qwen")
    expect(row).to_have_count(0)
    assert watched.errors == []


def test_a_query_has_a_table_a_graph_and_an_error_with_its_reason(watched: kit.Watched) -> None:
    page = watched.open("query")
    field = page.get_by_label("PromQL expression")
    field.fill('queue_depth{model=~"llama|qwen"}')
    field.press("Enter")
    expect(page.get_by_role("row", name=re.compile("qwen"))).to_be_visible()
    page.get_by_label("Output").select_option("60")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("svg.chart path.line")).to_have_count(2)
    watched.picture("query")
    field.fill("sum(")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("parse error")
    # The browser logs the status of the refused query.
    assert len(watched.errors) == 1 and "400" in watched.errors[0]


def test_the_tap_shows_the_items_of_a_component_and_stops_at_its_limit(watched: kit.Watched) -> None:
    page = watched.open("tap/receivers%3A%3Aotlp")
    page.get_by_label("Where").fill('queue_depth{model=~"<.*"}')
    page.locator("#limit").fill("2")
    page.get_by_role("button", name="Start").click()
    main = page.locator("main")
    expect(main).to_contain_text("2 items, 0 batches skipped. It ended: limit.")
    items = page.locator(".items li")
    expect(items).to_have_count(2)
    for index in range(2):
        expect(items.nth(index)).to_contain_text('"name": "queue_depth"')
        expect(items.nth(index)).to_contain_text(kit.HOSTILE)
    assert main.locator("img").count() == 0
    watched.picture("tap")
    page.get_by_label("Component").fill("receivers::otpl")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("no pipeline has the component `receivers::otpl`")
    # The browser logs the status of the refused tap.
    assert len(watched.errors) == 1 and "404" in watched.errors[0]


def test_the_page_works_without_a_mouse(watched: kit.Watched) -> None:
    page = watched.open("graph")
    expect(page.locator("svg.graph a.node").first).to_be_visible()
    watched.enter_content()
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.className"))
    assert "#/component/exporter/prometheus" in seen, seen
    page.locator("#views a", has_text="Ledger").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Ledger")
    expect(page.locator("main")).to_be_focused()
    page.locator("#views a", has_text="Components").focus()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(outline) == "solid"
    assert page.locator("#views a[aria-current=page]").inner_text() == "Ledger"


def test_a_hidden_page_reads_nothing(watched: kit.Watched) -> None:
    page = watched.open("graph")
    expect(page.locator("#stream")).to_have_text("live")
    hide = "(hidden) => {Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))}"
    with page.expect_event("requestfailed", lambda request: "/status/stream" in request.url):
        page.evaluate(hide, True)
    expect(page.locator("#stream")).to_have_text("paused")
    with page.expect_request("**/status/stream**"):
        page.evaluate(hide, False)
    expect(page.locator("#stream")).to_have_text("live")


def test_ten_rounds_through_all_views_leave_no_node_and_no_listener(watched: kit.Watched) -> None:
    page = watched.open("graph")
    session = watched.context.new_cdp_session(page)

    def round_trip() -> dict[str, int]:
        for view in [*kit.VIEWS, "graph"]:
            page.evaluate("(view) => {location.hash = `#/${view}`}", view)
            expect(page.locator("main")).to_contain_text(kit.VIEWS[view])
        session.send("HeapProfiler.collectGarbage")
        return session.send("Memory.getDOMCounters")

    first = [round_trip() for _ in range(2)][-1]
    last = [round_trip() for _ in range(10)][-1]
    for counter in ("nodes", "jsEventListeners", "documents"):
        # Rows of the newest data may be a few more.
        assert last[counter] <= first[counter] * 1.1 + 20, (first, last)


def test_an_unknown_address_has_an_answer(watched: kit.Watched) -> None:
    page = watched.open("nothing")
    expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
    expect(watched.open("%E0%A4%A").get_by_role("heading", level=1)).to_have_text("Not found")
