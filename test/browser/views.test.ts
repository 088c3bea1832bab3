// Each view of the dashboard in a real Chromium, against each kind of store, and a revocation.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Lock } from "../../src/index.ts";
import { until } from "../../src/testing/until.ts";
import { chromiumUnavailableReason, launchChromium } from "../support/browser.ts";
import { openDashboard, openSite, row, STORES, show, WITHIN } from "../support/dashboard-site.ts";
import { cleanUpAfterEach } from "../support/server-fixture.ts";

cleanUpAfterEach();

const noBrowser = chromiumUnavailableReason();
let browser: Browser;
beforeAll(async () => {
  if (noBrowser === null) browser = await launchChromium();
});
afterAll(() => browser?.close());

describe.skipIf(noBrowser !== null)(`in Chromium${noBrowser === null ? "" : `: ${noBrowser}`}`, () => {
  for (const { name, reason, open } of STORES) {
    describe.skipIf(reason !== null)(name + (reason === null ? "" : `: ${reason}`), () => {
      test("each view shows what the store has, and a revocation takes a lock from its holder", async () => {
        const site = await openSite(open);
        const [holder, waiter] = [await site.openClient("ana@web-1"), await site.openClient("bob@web-2")];
        const lock = await holder.acquire("invoice:42");
        const other = await holder.acquire("report");
        const waiting = waiter.acquire("invoice:42", { wait: "5m" }).catch(() => null);
        const page = await openDashboard(browser, site);

        await row(page, "invoice:42").getByText("ana@web-1").waitFor(WITHIN);
        await until(async () => (await row(page, "invoice:42").textContent())?.includes("1") === true, {
          within: 20_000,
          what: "the waiter",
        });
        await page.getByPlaceholder("Search keys and holders").fill("report");
        await until(async () => (await row(page, "invoice:42").count()) === 0, { within: 10_000, what: "the search" });
        expect(page.url()).toContain("report");

        await show(page, site, "/ui/holders", "ana@web-1");
        await row(page, "bob@web-2").first().waitFor(WITHIN);
        await show(page, site, "/ui/now", "Longest wait");
        await page.locator("canvas").first().waitFor(WITHIN);
        await show(page, site, "/ui/store", "Fencing tokens");

        await show(page, site, "/ui/k/invoice%3A42", "ana@web-1");
        await page.getByText("bob@web-2").first().waitFor(WITHIN);
        await page.getByRole("button", { name: "Revoke the lock of ana@web-1", exact: true }).click();
        const dialog = page.getByRole("dialog");
        await dialog.getByText("ana@web-1").first().waitFor(WITHIN);
        expect(await dialog.textContent()).toContain(String(lock.token));
        const confirm = dialog.getByRole("button", { name: /revoke/i });
        expect(await confirm.isDisabled()).toBe(true);
        await dialog.getByLabel(/^Reason/).fill("its host is gone");
        await confirm.click();
        await until(() => lock.signal.aborted, { within: 30_000, what: "the loss of the lock" });
        await lock.release().catch(() => undefined);
        const granted = (await waiting) as Lock;
        await until(async () => (await page.getByRole("table").first().textContent())?.includes("bob@web-2") === true, {
          within: 20_000,
          what: "the next holder",
        });
        await show(page, site, "/ui/events", "revoked");
        expect(await row(page, "revoked").first().textContent()).toContain("its host is gone");
        await Promise.all([granted.release(), other.release()]);
      }, 90_000);
    });
  }
});
