import { chmodSync, lstatSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { hostname, userInfo } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { StoreRefusedError } from "../../../src/errors.ts";
import {
  prepareSocketPath,
  resolveUserDirectory,
  userSocketPath,
  validateUserDirectory,
} from "../../../src/os/user-directory.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync("/tmp/hf-dir-");
});
afterEach(() => rmSync(folder, { recursive: true }));

test("the directory is the same whatever HOME, TMPDIR and XDG_RUNTIME_DIR are", () => {
  const defaultDirectory = resolveUserDirectory({});
  expect(resolveUserDirectory({ HOME: "/elsewhere", TMPDIR: "/elsewhere", XDG_RUNTIME_DIR: "/run/user/7" })).toBe(
    defaultDirectory,
  );
  expect(defaultDirectory).toBe(join(userInfo().homedir, ".holdfast", hostname()));
});

test("HOLDFAST_DIR names another directory and must be absolute", () => {
  expect(resolveUserDirectory({ HOLDFAST_DIR: "/somewhere" })).toBe("/somewhere");
  expect(() => resolveUserDirectory({ HOLDFAST_DIR: "some/where" })).toThrow(/HOLDFAST_DIR must be an absolute path/);
});

test("a missing directory is created with mode 0700, and so are its parents", () => {
  const directory = join(folder, "a", "b");
  expect(prepareSocketPath(directory)).toBe(join(directory, "socket"));
  for (const createdPath of [join(folder, "a"), directory]) expect(lstatSync(createdPath).mode & 0o777).toBe(0o700);
});

test("a directory that is a link is refused, even to one of the same user", () => {
  mkdirSync(join(folder, "real"), { mode: 0o700 });
  symlinkSync(join(folder, "real"), join(folder, "link"));
  expect(() => prepareSocketPath(join(folder, "link"))).toThrow(StoreRefusedError);
  expect(() => prepareSocketPath(join(folder, "link"))).toThrow(/is a symbolic link/);
});

test("a dangling link is refused and its target is not created", () => {
  symlinkSync(join(folder, "nowhere"), join(folder, "link"));
  expect(() => prepareSocketPath(join(folder, "link"))).toThrow(/is a symbolic link/);
  expect(lstatSync(join(folder, "nowhere"), { throwIfNoEntry: false })).toBeUndefined();
});

test.each([0o701, 0o710, 0o750, 0o777])("a directory of mode %o is refused as open to others", (mode) => {
  const directory = join(folder, "open");
  mkdirSync(directory);
  chmodSync(directory, mode);
  expect(() => prepareSocketPath(directory)).toThrow(/is open to others/);
});

test.runIf(process.getuid?.() === 0)("a directory of another user is refused", async () => {
  const { chownSync } = await import("node:fs");
  const directory = join(folder, "squatted");
  mkdirSync(directory, { mode: 0o700 });
  chownSync(directory, 12_345, 12_345);
  expect(() => prepareSocketPath(directory)).toThrow(/belongs to the user with id 12345/);
});

test("a file in the directory's place is refused", () => {
  writeFileSync(join(folder, "file"), "");
  expect(() => prepareSocketPath(join(folder, "file"))).toThrow(/is not a directory/);
  expect(() => validateUserDirectory(join(folder, "missing"))).toThrow(/does not exist/);
});

test.runIf(process.platform === "linux")(
  "a directory that cannot be created is refused at once: below /proc, a dangling link, a file",
  () => {
    expect(() => prepareSocketPath("/proc/holdfast/deep")).toThrow(StoreRefusedError);
    expect(() => prepareSocketPath("/proc/holdfast/deep")).toThrow(/\/proc belongs to the kernel .*set HOLDFAST_DIR/);
    symlinkSync(join(folder, "nowhere"), join(folder, "link"));
    expect(() => prepareSocketPath(join(folder, "link", "x"))).toThrow(/link is a link to a path that does not exist/);
    writeFileSync(join(folder, "file"), "");
    expect(() => prepareSocketPath(join(folder, "file", "x"))).toThrow(/file is not a directory/);
  },
);

test.each(["/", "//", "/.", "/./"])("a link is refused although HOLDFAST_DIR ends with %s", (end) => {
  mkdirSync(join(folder, "real"), { mode: 0o700 });
  symlinkSync(join(folder, "real"), join(folder, "link"));
  const directory = resolveUserDirectory({ HOLDFAST_DIR: `${join(folder, "link")}${end}` });
  expect(directory).toBe(join(folder, "link"));
  expect(() => prepareSocketPath(directory)).toThrow(/is a symbolic link/);
});

test("a socket path of 103 bytes is accepted, a longer one is an error that names HOLDFAST_DIR", () => {
  const longest = `/${"x".repeat(103 - "/".length - "/socket".length)}`;
  expect(Buffer.byteLength(userSocketPath(longest))).toBe(103);
  expect(() => userSocketPath(`${longest}x`)).toThrow(/104 bytes.*HOLDFAST_DIR/);
  // bytes, not characters
  expect(() => userSocketPath(`/${"é".repeat(50)}`)).toThrow(/HOLDFAST_DIR/);
});
