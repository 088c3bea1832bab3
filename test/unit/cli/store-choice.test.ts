import { expect, test } from "vitest";
import type { StoreFlags } from "../../../src/cli/store-choice.ts";
import { chooseStore, describeStore } from "../../../src/cli/store-choice.ts";

const URL_VARIABLE = { HOLDFAST_URL: "redis://variable" };
const DRIVER_VARIABLE = { HOLDFAST_DRIVER: "./variable.js" };

test.each<[StoreFlags, NodeJS.ProcessEnv, string]>([
  [{}, {}, "your lock server"],
  [{}, { HOLDFAST_URL: "", HOLDFAST_DRIVER: "" }, "your lock server"],
  [{}, URL_VARIABLE, "redis://variable"],
  [{}, { ...URL_VARIABLE, HOLDFAST_DRIVER: "" }, "redis://variable"],
  [{}, { ...DRIVER_VARIABLE, HOLDFAST_URL: "" }, "the driver ./variable.js"],
  [{ url: "redis://flag" }, { ...URL_VARIABLE, ...DRIVER_VARIABLE }, "redis://flag"],
  [{ driver: "./flag.js" }, { ...URL_VARIABLE, ...DRIVER_VARIABLE }, "the driver ./flag.js"],
])("%j with %j: %s", (flags, env, name) => {
  expect(describeStore(chooseStore(flags, env))).toBe(name);
});

test("a message about a module names the setting that it comes from", () => {
  expect(chooseStore({ driver: "./flag.js" }, {})).toMatchObject({ origin: "--driver" });
  expect(chooseStore({}, DRIVER_VARIABLE)).toMatchObject({ origin: "HOLDFAST_DRIVER" });
});

test("two settings of equal rank are a mistake, and both are named", () => {
  const error = (names: string) => expect.objectContaining({ code: 64, message: expect.stringMatching(names) });
  expect(() => chooseStore({ url: "redis://a", driver: "./b.js" }, {})).toThrow(error("^--driver and --url cannot"));
  expect(() => chooseStore({}, { ...URL_VARIABLE, ...DRIVER_VARIABLE })).toThrow(
    error("^HOLDFAST_DRIVER and HOLDFAST_URL are both set"),
  );
});
