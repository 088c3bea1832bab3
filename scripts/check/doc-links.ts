import { existsSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import type { Page } from "./markdown.ts";
import { findAnchors, findLinks, parsePage, readPages } from "./markdown.ts";

/** Every relative link in a Markdown file leads to a file, and to a heading of it where it names one. */
export function brokenLinks(pages: readonly Page[] = readPages()): string[] {
  return pages.flatMap((page) =>
    findLinks(page).flatMap(({ line, target }) => {
      const wrong = findLinkProblem(page, target, pages);
      return wrong === null ? [] : [`${page.path}:${line} ${target} ${wrong}`];
    }),
  );
}

const INDEX = "docs/README.md";
const INDEXED_PAGES = /^docs\/(?:guide|design|reference)\//;

/** Every page of these folders is linked from the index, so that a reader finds it without a search. */
export function unlistedPages(pages: readonly Page[] = readPages()): string[] {
  const index = pages.find(({ path }) => path === INDEX);
  const linked = new Set(
    index === undefined ? [] : findLinks(index).map(({ target }) => posix.join("docs", target.replace(/#.*/, ""))),
  );
  return pages
    .filter(({ path }) => INDEXED_PAGES.test(path) && !linked.has(path))
    .map(({ path }) => `${path} is not linked from ${INDEX}`);
}

/** Folders in which a path of these pages may begin: ARCHITECTURE.md leaves out "src/", a decision also its area. */
const PATH_ROOTS: readonly string[] = ["", "src/", "src/server/", "src/gateway/", "src/drivers/redis/"];
/** The changelog names files of its time. */
const PAST_PAGES = /^CHANGELOG\.md$/;
const CODE_PATH = /`((?:[\w.-]+\/)+[\w.-]+\.(?:ts|lua|sql|sh))`/g;

/**
 * Every source file that a page names in code style exists: a page that sends readers to a moved file is worse than none.
 * NAME stands for any name.
 */
export function findMissingPaths(pages: readonly Page[] = readPages()): string[] {
  return pages
    .filter(({ path }) => !PAST_PAGES.test(path))
    .flatMap((page) =>
      parsePage(page).prose.flatMap((text, index) =>
        [...text.matchAll(CODE_PATH)].flatMap(([, path = ""]) =>
          /[A-Z]{4}/.test(path) || PATH_ROOTS.some((root) => existsSync(root + path))
            ? []
            : [`${page.path}:${index + 1} ${path} does not exist`],
        ),
      ),
    );
}

function findLinkProblem(page: Page, target: string, pages: readonly Page[]): string | null {
  if (target.startsWith("/")) return "is not relative";
  const [file = "", anchor] = target.split("#");
  const path = file === "" ? page.path : posix.join(posix.dirname(page.path), decodeURIComponent(file));
  if (path.startsWith("../")) return "leaves the tree";
  const linked = pages.find((page) => page.path === path.replace(/\/$/, ""));
  if (linked === undefined && !existsSync(path)) return "does not exist";
  if (anchor === undefined) return null;
  if (linked !== undefined) return findAnchors(linked).has(anchor) ? null : "has no such heading";
  const lines = readFileSync(path, "utf8").split("\n").length;
  const wanted = /^L(\d+)$/.exec(anchor);
  return wanted !== null && Number(wanted[1]) <= lines ? null : "has no such line";
}
