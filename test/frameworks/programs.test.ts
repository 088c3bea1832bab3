/** Programs of a user: the examples run, and the types fit those of the frameworks, with every version of TypeScript. */

import { readdirSync, rmSync } from "node:fs";
import { basename } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { connect } from "../../src/client/connect.ts";
import { until } from "../../src/testing/until.ts";
import { cleanUpAfterEach, onCleanup, startServer } from "../support/server-fixture.ts";
import {
  compilePrograms,
  createProgramFolder,
  runCompiled,
  startCompiled,
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

const EXPECTED_OUTPUT: Readonly<Record<string, readonly string[]>> = {
  express: PAID,
  fastify: PAID,
  hono: PAID,
  nest: [
    'meanwhile: 409 {"message":"this order is being paid","error":"Conflict","statusCode":409}',
    'first: 201 {"paid":"42"}',
    "books: 201 closed until the end of the program",
  ],
};
/** A compiler takes ten seconds on a busy machine. */
const TIMEOUT_MS = 90_000;
const NEST = { experimentalDecorators: true, emitDecoratorMetadata: true };

const DECORATED = [
  "1 order:1 2, 1 order:1 3",
  "most at once: 1",
  "a:x, a:y",
  "lock.Orders.nightly",
  "lock.Orders.ship#7",
  "total 9",
  "pay 2",
];

const NEST_OUTPUT = [
  "answers: 1",
  'one: "201 paid 7 5 route:7 true"',
  "most at once: 1",
  'scoped: "200 request"',
  'subclass: "lock.Base.nightly#all"',
  'two keys: "b a account:a,account:b"',
  'metadata: "clerk"',
  'middleware: "404"',
  'job: ["true tick job:report",null]',
  'schedule: {"name":"report","timeZone":"Europe/Berlin","unrefTimeout":true,"cronTime":"0 3 * * *"}',
  'no jobs: "@LockedCron() has not found the jobs of @nestjs/schedule: import its ScheduleModule, and install it where holdfast finds it, only once"',
  'job outside: "this instance has no locks: NestJS must make it, and gives them to it after its constructor"',
  'outside: "this instance has no locks: NestJS must make it, and gives them to it after its constructor"',
  "ready: true",
];

async function expectOutput(program: string, path: string, lines: readonly string[]): Promise<void> {
  const { stdout, stderr } = await runCompiled(program, `holdfast+unix:${path}`);
  expect(stderr).toBe("");
  expect(stdout.trimEnd().split("\n")).toEqual(lines);
}

test("every example has its output here", () => {
  const names = readdirSync("examples/web").filter((name) => name.endsWith(".ts"));
  expect(names.map((name) => basename(name, ".ts")).sort()).toEqual(Object.keys(EXPECTED_OUTPUT).sort());
});

describe.each(TYPESCRIPT_VERSIONS)("%s", (typescript) => {
  test("standard decorators, the types of the middleware, and examples", { timeout: TIMEOUT_MS }, async () => {
    const server = await startServer();
    const [decorated, _types, ...examples] = await compilePrograms(openFolder(), typescript, [
      "test/frameworks/programs/decorated.ts",
      "test/frameworks/programs/middleware-types.ts",
      ...["express", "fastify", "hono"].map((name) => `examples/web/${name}.ts`),
    ]);
    await expectOutput(decorated as string, server.path, DECORATED);
    // what they do does not depend on the version
    if (typescript !== "typescript7") return;
    for (const program of examples) {
      await expectOutput(program, server.path, EXPECTED_OUTPUT[basename(program, ".js")] ?? []);
    }
  });

  test("decorators of NestJS, in an application that gives its locks back when it is stopped", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const server = await startServer();
    const observer = await connect(`holdfast+unix:${server.path}`);
    onCleanup(() => observer.close());
    const [decorated, application, example] = (await compilePrograms(
      openFolder(),
      typescript,
      ["test/frameworks/programs/decorated.ts", "test/frameworks/programs/nest-application.ts", "examples/web/nest.ts"],
      NEST,
    )) as [string, string, string];
    await expectOutput(decorated, server.path, DECORATED);
    if (typescript === "typescript7") await expectOutput(example, server.path, EXPECTED_OUTPUT.nest ?? []);
    expect(await observer.list()).toEqual([]);

    const child = startCompiled(application, `holdfast+unix:${server.path}`);
    await until(() => child.output().includes("ready: true"), { within: 15_000, what: "the application" });
    const [held] = await observer.list();
    expect(held).toMatchObject({ locks: [{ key: "nest.held by the application" }], label: "nest" });
    child.stop();
    await child.ended;
    expect(child.output().trimEnd().split("\n")).toEqual(NEST_OUTPUT);
    // the tick of the job stays locked until no process can come with it
    const keys = (await observer.list()).map(({ locks }) => locks[0]?.key);
    expect(keys).toEqual([expect.stringMatching(/^nest\.job:report:.*Z$/)]);
  });
});
