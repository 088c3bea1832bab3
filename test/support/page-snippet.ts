/** Runs a block of a page as a reader would: compiled, in a process of its own, with the built package. */

import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import ts from "typescript";
import { parsePage } from "../../scripts/check/markdown.ts";
import { createSnippet, LANGUAGES } from "../../scripts/check/snippets.ts";
import { builtFile } from "./built-file.ts";

const RUN_MS = 30_000;
const OPTIONS = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext } as const;

const MAIN = `
import * as given from "./given.mjs";
Object.assign(globalThis, given);
const { snippet, ...exported } = await import("./block.mjs");
await snippet?.();
await given.after?.(exported);
`;

export interface PageSnippet {
  /** In docs/guide, without ".md". */
  readonly page: string;
  /** The position among the blocks of code of the page. Default 0. */
  readonly block?: number;
  /** A module that exports what the page declares as given, and `after`, which is called with the exports of the block. */
  readonly given?: string;
  /** Texts of the block, such as addresses, and what stands for them. Each must occur. */
  readonly replaced?: Readonly<Record<string, string>>;
}

export interface SnippetResult {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

/** Runs it in memory, where the block names no other store. */
export async function runSnippet({
  page,
  block = 0,
  given = "export {};",
  replaced = {},
}: PageSnippet): Promise<SnippetResult> {
  builtFile("dist/index.js");
  // within the package, so that "holdfast" is resolved as for users
  mkdirSync("build/snippets", { recursive: true });
  const folder = mkdtempSync(resolve("build/snippets", `${page}-`));
  try {
    writeFileSync(join(folder, "given.mjs"), given);
    writeFileSync(join(folder, "block.mjs"), compileBlock(page, block, replaced));
    writeFileSync(join(folder, "main.mjs"), MAIN);
    return await runProgram(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function compileBlock(page: string, position: number, replaced: Readonly<Record<string, string>>): string {
  const path = `docs/guide/${page}.md`;
  const blocks = parsePage({ path, text: readFileSync(path, "utf8") }).blocks;
  const block = blocks.filter(({ language }) => LANGUAGES.has(language))[position];
  if (block === undefined) throw new Error(`${path} has no block ${position}`);
  let { code } = block;
  for (const [text, replacement] of Object.entries(replaced)) {
    if (!code.includes(text)) throw new Error(`${path}:${block.line} does not contain ${text}`);
    code = code.replaceAll(text, replacement);
  }
  const { text } = createSnippet(path, { ...block, code });
  return ts.transpileModule(text, { compilerOptions: OPTIONS }).outputText;
}

function runProgram(folder: string): Promise<SnippetResult> {
  const options = { cwd: folder, env: { ...process.env, HOLDFAST_URL: "memory:" }, timeout: RUN_MS };
  return new Promise((settle) => {
    const child = execFile(process.execPath, ["main.mjs"], options, (_, out, err) => {
      settle({ code: child.exitCode, out, err });
    });
  });
}
