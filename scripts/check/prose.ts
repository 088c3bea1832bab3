// Phrases that plain technical English does not need: they hide which component acts, and on what.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
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

/** Where a phrase may stand, and how often at most. The numbers may only fall; 0 in messages and pages, few in comments. */
const MAX_PHRASES = { messages: 0, comments: 40, pages: 0 };

type Kind = keyof typeof MAX_PHRASES;

export interface Finding {
  readonly kind: Kind;
  /** "src/lock-table/admission.ts:12" */
  readonly place: string;
  readonly phrase: string;
}

/** The phrases of a text, with the line on which each stands; `line`: of the first line of the text. */
function phrasesIn(text: string, kind: Kind, path: string, line = 1): Finding[] {
  return text
    .split("\n")
    .flatMap((content, index) =>
      [...content.matchAll(PHRASE)].map(([phrase]) => ({ kind, place: `${path}:${line + index}`, phrase })),
    );
}

/** String literals and templates are messages; comments are found by their start, since the parser drops them. */
export function phrasesInSources(sourceTree: SourceTree): Finding[] {
  return [...sourceTree.values()].flatMap((file) => {
    const findings: Finding[] = [];
    const lineAt = (position: number): number => file.getLineAndCharacterOfPosition(position).line + 1;
    const comments = new Map<number, number>();
    walk(file, (node) => {
      if (ts.isStringLiteralLike(node) || ts.isTemplateHead(node) || ts.isTemplateMiddleOrTemplateTail(node)) {
        findings.push(...phrasesIn(node.text, "messages", file.fileName, lineAt(node.getStart())));
      }
      const ranges = [
        ...(ts.getLeadingCommentRanges(file.text, node.getFullStart()) ?? []),
        ...(ts.getTrailingCommentRanges(file.text, node.getEnd()) ?? []),
      ];
      for (const { pos, end } of ranges) comments.set(pos, end);
    });
    for (const [start, end] of comments) {
      findings.push(...phrasesIn(file.text.slice(start, end), "comments", file.fileName, lineAt(start)));
    }
    return findings;
  });
}

/** The text of pages without their code; decisions tell of their time and keep their words. */
export function phrasesInPages(pages: readonly Page[]): Finding[] {
  return pages
    .filter(({ path }) => !/^docs\/decisions\/|^CHANGELOG/.test(path))
    .flatMap((page) => phrasesIn(parsePage(page).prose.join("\n"), "pages", page.path));
}

function phrasesInTexts(folder: string): Finding[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(?:lua|sql)$/.test(name))
    .flatMap((name) => phrasesIn(readFileSync(join(folder, name), "utf8"), "comments", join(folder, name)));
}

/** One fault for each kind of text with more phrases than it may have, with all their places. */
export function proseFaults(sourceTree: SourceTree): string[] {
  const generated = /^src\/drivers\/(?:redis\/scripts|sql\/\w+\/statements)\.ts$/;
  const written = new Map([...sourceTree].filter(([path]) => !generated.test(path)));
  const findings = [...phrasesInSources(written), ...phrasesInTexts("src/drivers"), ...phrasesInPages(readPages())];
  return (Object.keys(MAX_PHRASES) as Kind[]).flatMap((kind) => {
    const places = findings
      .filter((finding) => finding.kind === kind)
      .map(({ place, phrase }) => `${place} "${phrase}"`);
    if (places.length <= MAX_PHRASES[kind]) return [];
    return [[`${places.length} phrases in ${kind}, at most ${MAX_PHRASES[kind]}`, ...places].join("\n")];
  });
}
