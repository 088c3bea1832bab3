import type { ConformanceOptions, Runner } from "../../src/conformance/suite.ts";
import { testDriver } from "../client/suite.ts";

export type RecordedTest = {
  readonly topic: string;
  readonly name: string;
  readonly body: () => Promise<void>;
};

/** The tests that the suite and the client suite would register for this driver, to be run one by one and expected to fail. */
export function recordSuite(options: ConformanceOptions): readonly RecordedTest[] {
  const tests: RecordedTest[] = [];
  let topic = "";
  const runner: Runner = {
    describe: (name, body) => {
      topic = name;
      body();
    },
    test: (name, body) => tests.push({ topic, name, body }),
  };
  testDriver(runner, "recorded", options);
  return tests;
}

/** The message of the failed test, or null. */
export async function runExpectingFailure(test: RecordedTest): Promise<string | null> {
  try {
    await test.body();
    return null;
  } catch (error) {
    return String(error);
  }
}
