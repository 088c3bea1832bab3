import { expect, test } from "vitest";
import { awaitFurther } from "../../../src/dashboard/model/sent-values.ts";

test("a value that the field has sent does not replace what was typed meanwhile", () => {
  expect(awaitFurther(["k", "ke"], "k")).toEqual(["ke"]);
  expect(awaitFurther(["k", "ke", "key"], "key")).toEqual([]);
});

test("any other value does", () => {
  expect(awaitFurther(["k", "ke"], "")).toBeNull();
  expect(awaitFurther([], "k")).toBeNull();
});
