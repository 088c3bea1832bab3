/** A real Chromium for tests: that of Debian, driven by playwright-core. */

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { chromium } from "playwright-core";
import { expect } from "vitest";
import { canInstall, installPackages } from "./debian-packages.ts";

/** Debian's Chromium; Ubuntu has none as a package, and some machines with it have Chrome. */
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/google-chrome"] as const;
const FONTS = "fonts-dejavu-core";

/** Why there is no Chromium here and none can be had; null if there is. */
export function chromiumUnavailableReason(): string | null {
  if (findProgram() !== undefined) return null;
  return canInstall() ? null : "chromium is not installed, and only root on Debian could install it";
}

export function installChromium(): void {
  if (findProgram() === undefined) installPackages(["chromium", FONTS], "the tests of the dashboard in a browser");
}

function findProgram(): string | undefined {
  return PROGRAMS.find((program) => spawnSync(program, ["--version"], { stdio: "ignore" }).status === 0);
}

/** A browser that requests nothing by itself. The caller closes it. */
export function launchChromium(): Promise<Browser> {
  const args = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"];
  return chromium.launch({ executablePath: findProgram() ?? PROGRAMS[0], args });
}

/** A tab, and what went wrong in it. */
export interface TestPage {
  readonly page: Page;
  /** Errors of scripts, messages of the console that are errors, and requests to other hosts. */
  readonly faults: string[];
}

/** Opens a tab in a browser profile of its own. */
export async function openTab(browser: Browser, options: BrowserContextOptions = {}): Promise<TestPage> {
  const context = await browser.newContext({ viewport: { width: 1_280, height: 800 }, ...options });
  return watchTab(await context.newPage());
}

export function watchTab(page: Page): TestPage {
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("console", (message) => {
    // a response with an error status is a part of several tests
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      faults.push(message.text());
  });
  page.on("request", (request) => {
    const { hostname, protocol } = new URL(request.url());
    if (hostname !== "127.0.0.1" && protocol !== "data:" && protocol !== "blob:") faults.push(request.url());
  });
  return { page, faults };
}

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Expects that axe finds no violation in what the page shows. */
export async function expectAccessible(page: Page): Promise<void> {
  const violations = await page.evaluate(`${AXE}; axe.run().then(({ violations }) =>
    violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html.slice(0, 200)).join(" | ")))`);
  expect(violations).toEqual([]);
}
