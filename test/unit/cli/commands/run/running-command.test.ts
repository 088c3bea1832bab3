import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import type { RunLock } from "../../../../../src/cli/commands/run/run-lock.ts";
import { createCommandEnvironment } from "../../../../../src/cli/commands/run/running-command.ts";

const URL_WITH_PASSWORD = "postgres://app:s3cret@db:5432/app";

const LOCK = { keys: ["k"], token: 1n, tokens: [1n], reference: "hf1.x" } as unknown as RunLock;

function urlOfCommand(env: NodeJS.ProcessEnv, urlFlag?: string): string | undefined {
  return createCommandEnvironment(env, LOCK, { url: urlFlag }).HOLDFAST_URL;
}

describe("the driver in the command's environment", () => {
  test.each([
    ["of the flag", { HOLDFAST_URL: "redis://other" }, "./package.json"],
    ["of a variable", { HOLDFAST_URL: "", HOLDFAST_DRIVER: "./package.json" }, undefined],
  ])("%s has an absolute path, and no url beside it", (_, env, driver) => {
    const { HOLDFAST_URL: url, HOLDFAST_DRIVER: path } = createCommandEnvironment(env, LOCK, { driver });
    expect([url, path]).toEqual([undefined, resolve("package.json")]);
  });

  test("a url takes its place", () => {
    const environment = createCommandEnvironment({ HOLDFAST_DRIVER: "./package.json" }, LOCK, { url: "redis://one" });
    expect(environment).toMatchObject({ HOLDFAST_URL: "redis://one" });
    expect(environment).not.toHaveProperty("HOLDFAST_DRIVER");
  });
});

describe("the url in the command's environment", () => {
  test("one that --url names has neither user nor password", () => {
    expect(urlOfCommand({ HOLDFAST_URL: "redis://other" }, URL_WITH_PASSWORD)).toBe("postgres://db:5432/app");
  });

  test("one that stood in the environment is unchanged, so that programs below can log in", () => {
    expect(urlOfCommand({ HOLDFAST_URL: URL_WITH_PASSWORD })).toBe(URL_WITH_PASSWORD);
  });

  test("without a url there is none", () => {
    expect(urlOfCommand({})).toBeUndefined();
  });
});
