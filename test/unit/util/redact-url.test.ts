import { expect, test } from "vitest";
import { redactUrl, redactUrls } from "../../../src/util/redact-url.ts";

test.each([
  ["redis://user:secret@host:6379/1", "redis://host:6379/1"],
  ["redis://user:se@cret@host", "redis://host"],
  ["redis://:secret@a:1,b:2/0?prefix=x@y", "redis://a:1,b:2/0?prefix=x@y"],
  ["redis:user:secret@host", "redis://host"],
  ["s3://key:secret@bucket/prefix", "s3://bucket/prefix"],
  ["postgres://host/db", "postgres://host/db"],
  ["sqlite:/folder@home/locks.db", "sqlite:/folder@home/locks.db"],
  ["holdfast+unix:/run@here/s", "holdfast+unix:/run@here/s"],
])("%s is shown as %s", (url, shown) => {
  expect(redactUrl(url)).toBe(shown);
});

test("in a text the user and the password of each url are removed, and nothing else", () => {
  expect(redactUrls("from redis://u:p@ss@host to mysql://root:x@db/locks, as admin@example.com")).toBe(
    "from redis://host to mysql://db/locks, as admin@example.com",
  );
});
