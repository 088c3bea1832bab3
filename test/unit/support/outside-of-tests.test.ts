import { expect, test } from "vitest";
import { installPackages } from "../../support/debian-packages.ts";

test("nothing is installed within a test: it takes longer than a test may", () => {
  expect(() => installPackages(["a-package"], "a test")).toThrow(
    'a-package must be installed before the tests begin: name it in "requires" of the suite in scripts/test/suites.ts',
  );
});
