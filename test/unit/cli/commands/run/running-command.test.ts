import { describe, expect, test } from "vitest";
import type { RunLock } from "../../../../../src/cli/commands/run/run-lock.ts";
import { createCommandEnvironment } from "../../../../../src/cli/commands/run/running-command.ts";

const URL_WITH_PASSWORD = "postgres://app:s3cret@db:5432/app";

function urlOfCommand(env: NodeJS.ProcessEnv, urlFlag?: string): string | undefined {
  const lock = { keys: ["k"], token: 1n, tokens: [1n], reference: "hf1.x" } as unknown as RunLock;
  return createCommandEnvironment(env, lock, { url: urlFlag }).HOLDFAST_URL;
}

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
