// The dashboard in a real Chromium: hostile names, faults, sessions, rights, accessibility, and the keyboard.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/testing/until.ts";
import { chromiumUnavailableReason, expectAccessible, launchChromium, openTab, watchTab } from "../support/browser.ts";
import { openDashboard, openSite, row, STORES, show, WITHIN } from "../support/dashboard-site.ts";
import { cleanUpAfterEach, onCleanup } from "../support/server-fixture.ts";
import { startRedis } from "../support/stores/redis.ts";
import { createTestAccess, testAccount } from "../support/test-accounts.ts";

cleanUpAfterEach();

const noBrowser = chromiumUnavailableReason();
let browser: Browser;
beforeAll(async () => {
  if (noBrowser === null) browser = await launchChromium();
});
afterAll(() => browser?.close());

const [redis] = STORES;

describe.skipIf(noBrowser !== null)(`in Chromium${noBrowser === null ? "" : `: ${noBrowser}`}`, () => {
  describe.skipIf(redis.reason !== null)("on Redis", () => {
    test("hostile keys and labels are shown as text, and each has a page of its own", async () => {
      const site = await openSite(redis.open);
      const keys = [
        "<script>document.title='x'</script>",
        '"><img src=x onerror=alert(1)>',
        "\u202Egnp.exe",
        "\u0645\u0631\u062D\u0628\u0627",
        "\u{1F512}".repeat(100),
        "k".repeat(512),
        "a/b?c#d%2F&e=f",
        "' || rm -rf / #",
      ];
      const client = await site.openClient("<b onmouseover=alert(1)>label</b>");
      const locks = await Promise.all(keys.map((key) => client.acquire(key)));
      const page = await openDashboard(browser, site);
      await page.getByText("8 keys", { exact: true }).waitFor(WITHIN);
      await expectAccessible(page);
      for (const key of keys) {
        await show(page, site, `/ui/k/${encodeURIComponent(key)}`, "<b onmouseover=alert(1)>label</b>");
        expect(await page.title()).not.toBe("x");
        expect(
          await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"),
        ).toBe(true);
      }
      await Promise.all(locks.map((lock) => lock.release()));
    }, 90_000);

    test("no violation that axe finds, in both schemes and on a narrow screen, in any view", async () => {
      const site = await openSite(redis.open);
      const client = await site.openClient("ana");
      const lock = await client.acquire("k");
      const page = await openDashboard(browser, site);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        for (const width of [1_280, 320]) {
          await page.setViewportSize({ width, height: 800 });
          for (const [path, text] of [
            ["/ui", "1 key"],
            ["/ui/k/k", "ana"],
            ["/ui/holders", "ana"],
            ["/ui/events", "since"],
            ["/ui/now", "Longest wait"],
            ["/ui/store", "Fencing tokens"],
          ] as const) {
            await show(page, site, path, new RegExp(text));
            await expectAccessible(page);
            expect(
              await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"),
              `${path} at ${width}`,
            ).toBe(true);
          }
        }
      }
      await lock.release();
    }, 120_000);

    test("the store fails: the page keeps what it has, says how old it is and why, and goes on when the store is back", async () => {
      const server = await startRedis();
      const site = await openSite(async () => ({ url: server.url, close: () => server.stop() }));
      const client = await site.openClient("ana");
      await client.acquire("k", { ttl: "10m" });
      const page = await openDashboard(browser, site);
      await server.stop();
      await page
        .getByText(/\d+ s old/)
        .first()
        .waitFor({ timeout: 60_000 });
      expect(await row(page, "ana").count()).toBe(1);
      await expectAccessible(page);
    }, 90_000);

    test("two tabs share a session, a link works once, and signing out ends both", async () => {
      const site = await openSite(redis.open);
      const link = site.createLink();
      const { page, faults } = await openTab(browser);
      onCleanup(() => page.context().close());
      await page.goto(link);
      await page
        .getByText(/No lock|0 keys/)
        .first()
        .waitFor(WITHIN);
      expect(page.url(), "the token is not in the address any more").not.toContain("start=");
      const second = watchTab(await page.context().newPage());
      await second.page.goto(`${site.url}/ui/store`);
      await second.page.getByText("Fencing tokens").waitFor(WITHIN);
      const stranger = await openTab(browser);
      onCleanup(() => stranger.page.context().close());
      await stranger.page.goto(link);
      await stranger.page.getByText(/link/i).first().waitFor(WITHIN);
      expect(await stranger.page.getByRole("table").count()).toBe(0);
      await expectAccessible(stranger.page);
      await page.getByRole("button", { name: /sign out/i }).click();
      await page.getByText(/link/i).first().waitFor(WITHIN);
      await second.page.goto(`${site.url}/ui/store`);
      await second.page.getByText(/link/i).first().waitFor(WITHIN);
      expect([...faults, ...second.faults, ...stranger.faults]).toEqual([]);
    }, 60_000);

    test("a tab that has no session goes on when another tab of the browser is signed in; also without storage a link works", async () => {
      const site = await openSite(redis.open);
      const first = await openTab(browser);
      onCleanup(() => first.page.context().close());
      await first.page.goto(`${site.url}/ui/store`);
      await first.page.getByText(/link/i).first().waitFor(WITHIN);
      const second = watchTab(await first.page.context().newPage());
      await second.page.goto(site.createLink());
      await first.page.getByText("Fencing tokens").first().waitFor(WITHIN);
      const blocked = await openTab(browser);
      onCleanup(() => blocked.page.context().close());
      await blocked.page.addInitScript(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('blocked', 'SecurityError'); } });",
      );
      await blocked.page.goto(site.createLink());
      await blocked.page
        .getByText(/No lock|0 keys/)
        .first()
        .waitFor(WITHIN);
      expect([...first.faults, ...second.faults, ...blocked.faults]).toEqual([]);
    }, 60_000);

    test("the gateway ends: the page keeps what it has, and says that it cannot be reached", async () => {
      const site = await openSite(redis.open);
      const client = await site.openClient("ana");
      const lock = await client.acquire("k");
      const page = await openDashboard(browser, site);
      await row(page, "ana").first().waitFor(WITHIN);
      await site.close();
      await page
        .getByText(/cannot be reached/)
        .first()
        .waitFor(WITHIN);
      expect(await row(page, "ana").count()).toBe(1);
      await expectAccessible(page);
      await lock.release();
    }, 60_000);

    test("a stream of events that breaks goes on without loss, and stays paused", async () => {
      const site = await openSite(redis.open);
      const client = await site.openClient("ana");
      const page = await openDashboard(browser, site);
      await show(page, site, "/ui/events", "since");
      const lock = await client.acquire("first");
      await row(page, "first").first().waitFor(WITHIN);
      await page.getByRole("button", { name: "Pause" }).click();
      await page.context().setOffline(true);
      await page.context().setOffline(false);
      const other = await client.acquire("second");
      await page
        .getByText(/\d+ (new|more|event)/)
        .first()
        .waitFor(WITHIN);
      expect(await row(page, "first").count()).toBeGreaterThan(0);
      expect(await row(page, "second").count()).toBe(0);
      await page.getByRole("button", { name: /Continue|Resume/ }).click();
      await row(page, "second").first().waitFor(WITHIN);
      expect(await row(page, "first").count()).toBeGreaterThan(0);
      await Promise.all([lock.release(), other.release()]);
    }, 60_000);

    test("with accounts: a wrong credential, one that may see some keys and revoke none", async () => {
      const team = testAccount("team", "team/", ["inspect"]);
      const site = await openSite(redis.open, { access: createTestAccess(team) });
      const client = await site.openClient("ana");
      const locks = [await client.acquire("team/a"), await client.acquire("other")];
      const { page, faults } = await openTab(browser);
      onCleanup(() => page.context().close());
      await page.goto(`${site.url}/ui/k/team%2Fa`);
      const field = page.getByLabel(/credential/i).first();
      await field.fill("hf1_wrong");
      await field.press("Enter");
      await page.getByRole("alert").first().waitFor(WITHIN);
      await expectAccessible(page);
      await field.fill(team.credential);
      await field.press("Enter");
      await page.getByText("ana").first().waitFor(WITHIN);
      await page
        .getByText(/may not revoke/)
        .first()
        .waitFor(WITHIN);
      expect(await page.getByRole("button", { name: /^Revoke/ }).count()).toBe(0);
      await show(page, site, "/ui", "team/a");
      expect(await row(page, "other").count()).toBe(0);
      expect(await page.evaluate("JSON.stringify(localStorage)")).not.toContain(team.credential);
      expect(faults).toEqual([]);
      await Promise.all(locks.map((lock) => lock.release()));
    }, 60_000);

    test("by keyboard alone: search, move, open, go back, help", async () => {
      const site = await openSite(redis.open);
      const client = await site.openClient("ana");
      const locks = await Promise.all(["a", "b", "c"].map((key) => client.acquire(`key-${key}`)));
      const page = await openDashboard(browser, site);
      await page.getByText("3 keys").first().waitFor(WITHIN);
      await page.keyboard.press("/");
      await page.keyboard.type("key-");
      await page.keyboard.press("Enter");
      await page.keyboard.press("j");
      await page.keyboard.press("j");
      await page.keyboard.press("Enter");
      await until(() => /\/ui\/k\/key-b/.test(page.url()), { within: 10_000, what: "the second key" });
      await page.goBack();
      await page.getByText("3 keys").first().waitFor(WITHIN);
      await page.keyboard.press("?");
      await page.getByRole("dialog").waitFor(WITHIN);
      await expectAccessible(page);
      await Promise.all(locks.map((lock) => lock.release()));
    }, 60_000);
  });
});
