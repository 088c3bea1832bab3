// The guide describes every existing flag and variable, and no other. (The settings of `serve` have a test of
// their own, which also checks their defaults.)

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createServeOptions } from "../../src/cli/commands/serve/settings.ts";
import { cliSandbox } from "../support/cli-sandbox.ts";

const sandbox = cliSandbox();

const readChapters = (...chapters: readonly string[]): string =>
  chapters.map((name) => readFileSync(join("docs/guide", name), "utf8")).join("\n");
const documentedFlags = readChapters("cli.md", "operations.md", "access.md", "server.md");
/** Flags of other programs in those chapters. */
const FOREIGN_NAMES = ["--global", "--full", "--max-old-space-size"];

test("every flag is in the guide, and every flag in the guide exists", async () => {
  const { out } = await sandbox.run(["help", "all"]);
  const flags = new Set([...out.matchAll(/^ +(?:-\w, )?(--[a-z-]+)/gm)].map((match) => match[1] as string));
  expect(flags.size).toBeGreaterThan(40);
  // these belong to every command
  for (const known of ["--help", "--version"]) flags.delete(known);
  const written = new Set([...documentedFlags.matchAll(/(?<![-\w])--[a-z][a-z-]*\w/g)].map(([flag]) => flag));
  expect([...flags].filter((flag) => !written.has(flag))).toEqual([]);
  const known = [...flags, ...FOREIGN_NAMES, "--help", "--version"];
  expect([...written].filter((flag) => !known.includes(flag))).toEqual([]);
});

test("every variable that the code reads is in the guide, and every variable in the guide is read", () => {
  const all = readChapters(...readdirSync("docs/guide").filter((name) => name.endsWith(".md")));
  const sources = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  const code = sources.map((name) => readFileSync(join("src", name), "utf8")).join("\n");
  const names = (text: string): string[] => [...text.matchAll(/\bHOLDFAST_[A-Z_]*[A-Z]/g)].map(([name]) => name);
  const settings = createServeOptions().flatMap(({ envVar }) => envVar ?? []);
  // HOLDFAST_NAME: the pattern of the settings' variables
  const read = new Set([...names(code), ...settings].filter((name) => name !== "HOLDFAST_NAME"));
  expect(read.size).toBeGreaterThan(20);
  const written = new Set(names(all));
  expect([...read].filter((name) => !written.has(name))).toEqual([]);
  expect([...written].filter((name) => !read.has(name))).toEqual([]);
});

test("every log message has its row in the guide", () => {
  const files = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((name) =>
    /^(server\/.*|cli\/commands\/serve\/(serve|shutdown))\.ts$/.test(name),
  );
  const code = files.map((name) => readFileSync(join("src", name), "utf8")).join("\n");
  // up to its first variable part
  const messages = [...code.matchAll(/\blog\(\s*(?:"([^"]+)"|`([^`$]{4,})\$)/g)].map(
    ([, text, begun]) => text ?? begun ?? "",
  );
  expect(messages.length).toBeGreaterThan(12);
  const log = readChapters("server.md").split("## The log")[1]?.split("\n## ")[0] ?? "";
  const beginnings = [...log.matchAll(/`([^`]+)`/g)]
    .map(([, text = ""]) => text.replace(/[:;]? \.\.\.$/, ""))
    .filter((text) => text.length >= 6);
  expect(messages.filter((text) => !beginnings.some((row) => text.startsWith(row)))).toEqual([]);
});
