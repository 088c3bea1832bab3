import { expect, test } from "vitest";
import { readNamedFile } from "../../../src/os/files.ts";

test("a file that cannot be read is an error with its path, the reason and what names it", () => {
  expect(() => readNamedFile("/no/such.pem", "url: ca")).toThrow(
    expect.objectContaining({
      code: "LOCK_STORE_REFUSED",
      message: "url: ca names /no/such.pem, which cannot be read (ENOENT)",
      cause: expect.objectContaining({ code: "ENOENT" }),
    }),
  );
});

test("a file that can be read is returned as text", () => {
  expect(readNamedFile(import.meta.filename, "url: ca")).toContain("is returned as text");
});
