import { expect, test } from "vitest";
import { computeChecksum, decodeCheckedLine, encodeCheckedLine } from "../../../src/util/checksum.ts";

test("a line with its checksum decodes to its text, and an altered one to null", () => {
  const line = encodeCheckedLine('{"a":1}');
  expect(line).toMatch(/^[0-9a-f]{16} \{"a":1\}\n$/);
  expect(decodeCheckedLine(line.trimEnd())).toBe('{"a":1}');
  expect(decodeCheckedLine(line.trimEnd().replace("1}", "2}"))).toBeNull();
  expect(decodeCheckedLine(`${"0".repeat(16)} {"a":1}`)).toBeNull();
  expect(decodeCheckedLine("")).toBeNull();
});

test("the encoding and the length of a checksum can be chosen", () => {
  expect(computeChecksum("", "base64url", 8)).toBe("47DEQpj8");
});
