# SPDX-License-Identifier: Apache-2.0

"""Who may read the page: host names, policies and authenticators."""

from pathlib import Path

import kit
from playwright.sync_api import Browser, expect

BEARER = 'bearertokenauth: {token: "a-token"}'
BASIC = 'basicauth/page: {htpasswd: {inline: "ann:a-password"}}'


def test_a_page_of_another_host_name_reads_nothing(gateway: kit.Gateway) -> None:
    for path in ("/", "/page/app.js", "/api/v1/status/stream", "/api/v1/status/config"):
        assert gateway.get(path, host="rebound.example").status == 403, path
    assert gateway.get("/", host=f"localhost:{gateway.admin}").status == 200


def test_the_policy_allows_only_files_of_the_gateway(gateway: kit.Gateway) -> None:
    headers = gateway.get("/").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"
    assert gateway.get("/api/v1/status/buildinfo").headers["x-content-type-options"] == "nosniff"


def test_a_browser_fetches_only_changed_files_again(gateway: kit.Gateway) -> None:
    tag = gateway.get("/page/app.js").headers["etag"]
    again = gateway.get("/page/app.js", **{"if-none-match": tag})
    assert again.status == 304 and again.read() == b""


def test_a_page_asks_for_a_token_and_keeps_it_for_the_tab(browser: Browser, tmp_path: Path) -> None:
    auth = ", auth: {authenticator: bearertokenauth}"
    with kit.Gateway(tmp_path, auth, f"  {BEARER}", "bearertokenauth, ") as gateway, kit.Watched(browser, gateway.url) as watched:
        assert gateway.get("/api/v1/status/config").status == 401
        page = watched.open("ledger")
        field = page.get_by_label("Token")
        expect(field).to_be_focused()
        field.fill("wrong")
        field.press("Enter")
        expect(field).to_be_visible()
        field.fill("a-token")
        field.press("Enter")
        expect(page.locator("main")).to_contain_text("all components")
        page.reload()
        expect(page.locator("main")).to_contain_text("all components")
        assert page.evaluate("localStorage.length") == 0


def test_a_browser_asks_for_a_name_and_a_password(browser: Browser, tmp_path: Path) -> None:
    auth = ", auth: {authenticator: basicauth/page}"
    with kit.Gateway(tmp_path, auth, f"  {BASIC}", "basicauth/page, ") as gateway:
        assert gateway.get("/").status == gateway.get("/page/app.js").status == 401
        credentials = {"username": "ann", "password": "a-password"}
        with kit.Watched(browser, gateway.url, http_credentials=credentials) as watched:
            expect(watched.open("ledger").locator("main")).to_contain_text("all components")
            assert watched.errors == []


def test_a_tap_that_is_not_allowed_says_what_allows_it(browser: Browser, tmp_path: Path) -> None:
    with kit.Gateway(tmp_path, is_loaded=False) as gateway, kit.Watched(browser, gateway.url) as watched:
        page = watched.open("tap/receivers%3A%3Aotlp")
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_role("alert")).to_contain_text("not allowed: a tap shows the contents of data")
        expect(page.get_by_role("alert")).to_contain_text("`tap: true`")
        assert page.locator(".items li").count() == 0
