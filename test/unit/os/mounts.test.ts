import { describe, expect, test } from "vitest";
import { findMount, parseMounts, readMounts } from "../../../src/os/mounts.ts";

const TEXT = String.raw`22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:39 / /data\040one rw,nosuid shared:2 master:3 - fuse.sshfs host:/data rw,user_id=0
24 22 8:1 /x.db//deleted /x.db rw - ext4 /dev/sda1 rw
25 22 0:40 / /mnt rw - tmpfs none rw
26 25 0:41 / /mnt rw - fakeowner /run/host_mark/Users rw
`;

test("mounts have their points without escapes, and their types behind a varying number of fields", () => {
  expect(parseMounts(TEXT)).toEqual([
    { point: "/", type: "ext4" },
    { point: "/data one", type: "fuse.sshfs" },
    { point: "/x.db", type: "ext4" },
    { point: "/mnt", type: "tmpfs" },
    { point: "/mnt", type: "fakeowner" },
  ]);
});

describe("findMount()", () => {
  const mounts = parseMounts(TEXT);
  test.each([
    ["/data one/locks.db", "fuse.sshfs"],
    ["/data one more/locks.db", "ext4"],
    ["/data one", "fuse.sshfs"],
    ["/etc", "ext4"],
    ["/mnt/a", "fakeowner"],
  ])("%j is on %s", (path, type) => {
    expect(findMount(mounts, path)?.type).toBe(type);
  });

  test("knows nothing without mounts", () => {
    expect(findMount([], "/etc")).toBeNull();
  });
});

test.runIf(process.platform === "linux")("the mounts of this machine begin with its root", () => {
  expect(findMount(readMounts(), "/")?.point).toBe("/");
});
