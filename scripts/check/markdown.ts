// The Markdown files of the tree: their code blocks, headings and links.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** A file by its path from the root, such as "docs/guide/quick-start.md". */
export type Page = { readonly path: string; readonly text: string };

export type Block = {
  /** The first line of its code, counted from 1. */
  readonly line: number;
  readonly language: string;
  readonly code: string;
  /** What the nearest `<!-- given ... -->` above it says: context that readers are told in words. */
  readonly given: { readonly line: number; readonly code: string };
  /** The file of `<!-- program FILE -->` right above it, which it shows as it is. */
  readonly program: string | null;
};

type ParsedPage = {
  readonly blocks: readonly Block[];
  /** Lines that are neither code nor comment; others are empty, so numbers stay. */
  readonly prose: readonly string[];
};

const IGNORED_DIRECTORIES: ReadonlySet<string> = new Set(["node_modules", "dist", "build", "coverage", ".git"]);
const GIVEN_COMMENT = /^<!-- given\b/;
const PROGRAM_COMMENT = /^<!-- program (\S+) -->$/;

export function readPages(folder = "."): Page[] {
  return readdirSync(folder, { withFileTypes: true })
    .flatMap((entry) => {
      const path = folder === "." ? entry.name : join(folder, entry.name).replaceAll("\\", "/");
      if (entry.isDirectory()) return IGNORED_DIRECTORIES.has(entry.name) ? [] : readPages(path);
      return entry.name.endsWith(".md") ? [{ path, text: readFileSync(path, "utf8") }] : [];
    })
    .sort((page, otherPage) => (page.path < otherPage.path ? -1 : 1));
}

export function parsePage({ text }: Page): ParsedPage {
  const lines = text.split("\n");
  const blocks: Block[] = [];
  const prose = lines.map(() => "");
  let given = { line: 1, code: "" };
  let program: string | null = null;
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] as string;
    const fence = /^ *(`{3,}|~{3,}) *(\S*)/.exec(line);
    if (fence !== null) {
      const end = findEnd(lines, at, (one) => one.trim() === fence[1]);
      const code = lines.slice(at + 1, end).join("\n");
      blocks.push({ line: at + 2, language: fence[2] as string, code, given, program });
      program = null;
      at = end;
    } else if (line.startsWith("<!--")) {
      const end = line.includes("-->") ? at : findEnd(lines, at, (one) => one.includes("-->"));
      if (GIVEN_COMMENT.test(line)) given = { line: at + 1, code: parseGivenComment(lines.slice(at, end + 1)) };
      program = PROGRAM_COMMENT.exec(line)?.[1] ?? null;
      at = end;
    } else {
      prose[at] = line;
    }
  }
  return { blocks, prose };
}

/** Links to places in the tree, with their lines. Not those of the web, nor what only looks like one in code. */
export function findLinks(page: Page): { readonly line: number; readonly target: string }[] {
  return parsePage(page).prose.flatMap((text, index) =>
    [...withoutCode(text).matchAll(/\]\(<?([^)\s>]+)>?\)|^\[[^\]]+\]: *(\S+)/g)]
      .map((match) => match[1] ?? match[2] ?? "")
      .filter((target) => !/^[a-z][a-z0-9+.-]*:/i.test(target))
      .map((target) => ({ line: index + 1, target })),
  );
}

/** What can stand behind "#" in a link to this page. */
export function findAnchors(page: Page): Set<string> {
  const anchors = new Set<string>();
  for (const line of parsePage(page).prose) {
    const heading = /^#{1,6} +(.*?) *#*$/.exec(line);
    if (heading === null) continue;
    const anchor = (heading[1] as string)
      .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\p{M}_ -]/gu, "")
      .replaceAll(" ", "-");
    let name = anchor;
    for (let count = 1; anchors.has(name); count++) name = `${anchor}-${count}`;
    anchors.add(name);
  }
  return anchors;
}

function withoutCode(text: string): string {
  return text.replace(/(`+)(?:(?!\1).)+\1/g, (code) => " ".repeat(code.length));
}

/** The comment's text, line for line. */
function parseGivenComment(lines: readonly string[]): string {
  return lines
    .join("\n")
    .replace(GIVEN_COMMENT, "")
    .replace(/-->.*$/, "");
}

function findEnd(lines: readonly string[], start: number, isEnd: (line: string) => boolean): number {
  const found = lines.findIndex((line, index) => index > start && isEnd(line));
  return found === -1 ? lines.length : found;
}
