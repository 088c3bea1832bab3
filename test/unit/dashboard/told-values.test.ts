import { expect, test } from "vitest";
import { awaitFurther } from "../../../src/dashboard/model/told-values.ts";

test("a value that the field has told does not replace what was typed meanwhile", () => {
  expect(awaitFurther(["k", "ke"], "k")).toEqual(["ke"]);
  expect(awaitFurther(["k", "ke", "key"], "key")).toEqual([]);
});

test("any other value does", () => {
  expect(awaitFurther(["k", "ke"], "")).toBeNull();
  expect(awaitFurther([], "k")).toBeNull();
});
