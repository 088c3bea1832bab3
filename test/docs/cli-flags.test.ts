// The guide describes every existing flag and variable, and no other. (The settings of `serve` have a test of
// their own, which also checks their defaults.)

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createDashboardOptions, createGatewayOptions } from "../../src/cli/commands/gateway/settings.ts";
import { NESTED_RUN_VARIABLE } from "../../src/cli/commands/run/nested-runs.ts";
import { ANCESTORS_VARIABLE } from "../../src/cli/commands/run/outer-locks.ts";
import { createServeOptions } from "../../src/cli/commands/serve/settings.ts";
import { builtFile } from "../support/built-file.ts";

/** It has the help of every command. */
const MANUAL = readFileSync(builtFile("dist/holdfast.1"), "utf8").replaceAll("\\-", "-");

const readChapters = (...chapters: readonly string[]): string =>
  chapters.map((name) => readFileSync(join("docs/guide", name), "utf8")).join("\n");
const flagChapters = readChapters(
  "cli.md",
  "operations.md",
  "access.md",
  "server.md",
  "gateway.md",
  "dashboard.md",
  "torture.md",
);
/** Flags of other programs in those chapters. */
const FOREIGN_NAMES = ["--global", "--full", "--max-old-space-size", "--pid"];

test("every flag is in the guide, and every flag in the guide exists", () => {
  const flags = new Set([...MANUAL.matchAll(/^\.B (?:-\w, )?(--[a-z-]+)/gm)].map((match) => match[1] as string));
  expect(flags.size).toBeGreaterThan(40);
  // these belong to every command
  for (const common of ["--help", "--version"]) flags.delete(common);
  const documented = new Set([...flagChapters.matchAll(/(?<![-\w])--[a-z][a-z-]*\w/g)].map(([flag]) => flag));
  expect([...flags].filter((flag) => !documented.has(flag))).toEqual([]);
  const existing = [...flags, ...FOREIGN_NAMES, "--help", "--version"];
  expect([...documented].filter((flag) => !existing.includes(flag))).toEqual([]);
});

test("every variable that the help or a setting names is in the guide, and every variable in the guide is one of them", () => {
  const names = (text: string): string[] => [...text.matchAll(/\bHOLDFAST_[A-Z_]*[A-Z]/g)].map(([name]) => name);
  const settings = [...createServeOptions(), ...createDashboardOptions()].flatMap(({ envVar }) => envVar ?? []);
  // the manual does not name two of them: no program of a user reads those
  const existing = new Set([...names(MANUAL), ...settings, ANCESTORS_VARIABLE, NESTED_RUN_VARIABLE]);
  expect(existing.size).toBeGreaterThan(20);
  const guide = readChapters(...readdirSync("docs/guide").filter((name) => name.endsWith(".md")));
  expect([...new Set(names(guide))].sort()).toEqual([...existing].sort());
});

test("the page of the gateway has a row for every setting of it, and no other", () => {
  const page = readChapters("gateway.md");
  const options = createGatewayOptions();
  for (const { flags, envVar } of options) {
    const variable = envVar === undefined ? " " : ` \`${envVar}\` `;
    expect(page).toContain(`| \`${flags}\` |${variable}|`);
  }
  const rows = [...page.matchAll(/^\| `([^`]*)` \| (?:`HOLDFAST|\|)/gm)].map((match) => match[1]);
  expect(rows).toHaveLength(options.length);
});

test("the page of the dashboard has a row for every setting that a gateway does not have", () => {
  const page = readChapters("dashboard.md");
  const shared = createGatewayOptions().map(({ flags }) => flags);
  const own = createDashboardOptions().filter(({ flags }) => !shared.includes(flags));
  expect(own.length).toBeGreaterThan(0);
  for (const { flags, envVar } of own)
    expect(page).toContain(`| \`${flags}\` |${envVar === undefined ? " " : ` \`${envVar}\` `}|`);
});
