import { expect, test } from "vitest";
import { findLocationFault } from "../../../../src/drivers/sql/sqlite/location.ts";

test("a folder of the host in Docker Desktop on macOS is known by the type of its mount", () => {
  const mounts = [
    { point: "/", type: "overlay" },
    { point: "/data", type: "fakeowner" },
  ];
  expect(findLocationFault("/data/locks.db", mounts)?.message).toContain("/data/locks.db is on fakeowner");
  expect(findLocationFault("/locks.db", mounts)).toBeNull();
});

test.each(["", "-wal", "-shm"])("a mounted locks.db%s makes the database unusable", (suffix) => {
  const fault = findLocationFault("/none/locks.db", [{ point: `/none/locks.db${suffix}`, type: "ext4" }]);
  expect(fault?.message).toContain(`/none/locks.db${suffix} is mounted by itself`);
  expect(fault?.hint).toBe("mount the folder /none instead of the file");
});
