// Every ```ts block of the Markdown files compiles against the package's own types, as its users get them: dist.
//
// A block is a module of its own. Its imports stand at the top; the rest is the body of an async function, so that it may
// await and return. What earlier words on the page have introduced is declared in a comment that is not shown:
//
//   <!-- given
//   import type { Locks } from "holdfast";
//   declare const locks: Locks;
//   -->
//
// It holds for all blocks below it, up to the next one. A block may declare the same names anew.
//
// A block below `<!-- program FILE -->` shows a program as it is. A suite compiles and runs that file.

import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import ts from "typescript";
import type { Block, Page } from "./markdown.ts";
import { parsePage, readPages } from "./markdown.ts";

type Snippet = {
  readonly page: string;
  readonly block: Block;
  readonly text: string;
  /** Lines of the text before the block's own. */
  readonly linesBefore: number;
};

export const LANGUAGES: ReadonlySet<string> = new Set(["ts", "typescript", "mts", "js", "javascript", "mjs"]);

export function findSnippetFaults(pages: readonly Page[] = readPages()): string[] {
  const snippets = new Map<string, Snippet>();
  for (const page of pages) {
    for (const block of parsePage(page).blocks) {
      if (!LANGUAGES.has(block.language) || block.program !== null) continue;
      snippets.set(resolve(`${page.path}.${block.line}.ts`), createSnippet(page.path, block));
    }
  }
  const program = createProgram(snippets);
  return [...snippets].flatMap(([path, snippet]) => {
    const source = program.getSourceFile(path);
    const diagnostics = [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
    return diagnostics.map((diagnostic) => formatDiagnostic(snippet, diagnostic));
  });
}

/** Blocks that differ from the program that they show. */
export function findProgramFaults(pages: readonly Page[] = readPages()): string[] {
  return pages.flatMap((page) =>
    parsePage(page).blocks.flatMap(({ line, code, program }) => {
      if (program === null) return [];
      const shown = existsSync(program) ? readFileSync(program, "utf8") : null;
      return shown === `${code}\n` ? [] : [`${page.path}:${line} differs from ${program}`];
    }),
  );
}

/** The module of a block: what it exports, or else a function `snippet` with its statements. */
export function createSnippet(page: string, block: Block): Snippet {
  const file = ts.createSourceFile("block.ts", block.code, ts.ScriptTarget.ES2022);
  const { statements } = file;
  const imports = statements.filter(ts.isImportDeclaration);
  let { code } = block;
  for (const { pos, end } of imports) {
    code = code.slice(0, pos) + code.slice(pos, end).replace(/[^\n]/g, " ") + code.slice(end);
  }
  const exports = statements.some((statement) => !ts.isImportDeclaration(statement) && isExport(statement));
  const importText = imports.map((one) => block.code.slice(one.getStart(file), one.end).replace(/\s+/g, " ")).join(";");
  const head = `${block.given.code}\n${importText}\n`;
  // what exports cannot stand inside a function
  if (exports) return { page, block, text: head + code, linesBefore: countLines(head) };
  const functionHead = `${head}export async function snippet() {\n`;
  return { page, block, text: `${functionHead}${code}\n}\n`, linesBefore: countLines(functionHead) };
}

function isExport(statement: ts.Statement): boolean {
  if (ts.isExportDeclaration(statement) || ts.isExportAssignment(statement)) return true;
  const modifiers = ts.canHaveModifiers(statement) ? ts.getModifiers(statement) : undefined;
  return modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword) ?? false;
}

function createProgram(snippets: ReadonlyMap<string, Snippet>): ts.Program {
  const options = compilerOptions();
  const host = ts.createCompilerHost(options);
  const { fileExists, readFile, getSourceFile } = host;
  host.fileExists = (path) => snippets.has(path) || fileExists.call(host, path);
  host.readFile = (path) => snippets.get(path)?.text ?? readFile.call(host, path);
  host.getSourceFile = (path, languageVersion, ...rest) => {
    const text = snippets.get(path)?.text;
    if (text === undefined) return getSourceFile.call(host, path, languageVersion, ...rest);
    return ts.createSourceFile(path, text, languageVersion, true);
  };
  return ts.createProgram([...snippets.keys()], options, host);
}

/** As strict as the tree itself. */
export function compilerOptions(): ts.CompilerOptions {
  const { config } = ts.readConfigFile("tsconfig.json", (path) => ts.sys.readFile(path)) as { config: object };
  const { options } = ts.parseJsonConfigFileContent({ ...config, files: [], include: [] }, ts.sys, ".");
  const { rootDir: _rootDir, outDir: _outDir, ...rest } = options;
  return { ...rest, noEmit: true, typeRoots: [join(process.cwd(), "node_modules/@types")] };
}

function formatDiagnostic({ page, block, linesBefore }: Snippet, { file, start, messageText }: ts.Diagnostic): string {
  const at = file === undefined || start === undefined ? 0 : file.getLineAndCharacterOfPosition(start).line;
  const line = at < linesBefore ? block.given.line + at : block.line + at - linesBefore;
  return `${page}:${line} ${ts.flattenDiagnosticMessageText(messageText, " ")}`;
}

function countLines(text: string): number {
  return text.split("\n").length - 1;
}
