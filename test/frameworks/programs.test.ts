/** Programs of a user: the examples run, and the types fit those of the frameworks, with every version of TypeScript. */

import { readdirSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { cleanUpAfterEach, startServer } from "../support/server-fixture.ts";
import {
  compilePrograms,
  createProgramFolder,
  runCompiled,
  TYPESCRIPT_VERSIONS,
} from "../support/typescript-programs.ts";

cleanUpAfterEach();

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

function openFolder(): string {
  const folder = createProgramFolder();
  folders.push(folder);
  return folder;
}

const REFUSED = '{"title":"Conflict","status":409,"detail":"another request for this resource is running"}';
const PAID = [`meanwhile: 409 ${REFUSED}`, 'first: 200 {"paid":"42"}'];

const EXPECTED_OUTPUT: Readonly<Record<string, readonly string[]>> = { express: PAID, fastify: PAID, hono: PAID };

test("every example prints what it is for", async () => {
  const names = readdirSync("examples/web").filter((name) => name.endsWith(".ts"));
  expect(names.map((name) => basename(name, ".ts")).sort()).toEqual(Object.keys(EXPECTED_OUTPUT).sort());
  const programs = await compilePrograms(
    openFolder(),
    "typescript7",
    names.map((name) => join("examples/web", name)),
  );
  const server = await startServer();
  for (const program of programs) {
    const { stdout, stderr } = await runCompiled(program, `holdfast+unix:${server.path}`);
    expect(stderr).toBe("");
    expect(stdout.trimEnd().split("\n")).toEqual(EXPECTED_OUTPUT[basename(program, ".js")]);
  }
});

describe.each(TYPESCRIPT_VERSIONS)("%s", (typescript) => {
  test("middleware has the types of Express, Fastify and Hono", async () => {
    await compilePrograms(openFolder(), typescript, ["test/frameworks/programs/http-types.ts"], { noEmit: true });
  });
});
