// Phrases that plain technical English does not need: they hide which component acts, and on what.

import ts from "typescript";
import type { Page } from "./markdown.ts";
import { parsePage, readPages } from "./markdown.ts";
import type { SourceTree } from "./source-tree.ts";
import { walk } from "./source-tree.ts";

const PHRASES: readonly string[] = [
  "whoever",
  "whomever",
  "somebody",
  "nobody",
  "anybody",
  "who holds",
  "what is told",
  "what is due",
  "what is said",
  "stands in",
  "giv(?:es?|en) back",
  "lets? go of",
  "of ours",
  "anew",
  "all the same",
];
const PHRASE = new RegExp(`\\b(?:${PHRASES.join("|")})\\b`, "gi");

/** Decisions and the changelog tell of their time and keep their words. */
const PAST_PAGES = /^docs\/decisions\/|^CHANGELOG/;

/** One fault for each phrase in a message or a page: its file, its line, and the phrase. */
export function proseFaults(sourceTree: SourceTree, pages: readonly Page[] = readPages()): string[] {
  return [
    ...faultsInMessages(sourceTree),
    ...pages
      .filter(({ path }) => !PAST_PAGES.test(path))
      .flatMap((page) => faultsIn(parsePage(page).prose.join("\n"), page.path)),
  ];
}

/** String literals, templates and texts of pages; messages are among them. */
function faultsInMessages(sourceTree: SourceTree): string[] {
  return [...sourceTree.values()].flatMap((file) => {
    const faults: string[] = [];
    walk(file, (node) => {
      if (
        ts.isStringLiteralLike(node) ||
        ts.isTemplateHead(node) ||
        ts.isTemplateMiddleOrTemplateTail(node) ||
        ts.isJsxText(node)
      ) {
        const line = file.getLineAndCharacterOfPosition(node.getStart()).line + 1;
        faults.push(...faultsIn(node.text, file.fileName, line));
      }
    });
    return faults;
  });
}

/** @param line of the first line of the text */
function faultsIn(text: string, path: string, line = 1): string[] {
  return text
    .split("\n")
    .flatMap((content, index) =>
      [...content.matchAll(PHRASE)].map(([phrase]) => `${path}:${line + index} "${phrase}"`),
    );
}
