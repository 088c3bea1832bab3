import { describe, expect, test } from "vitest";
import { ChecksumChain } from "../../../../src/server/storage/checksum-chain.ts";
import {
  decodeRecord,
  decodeSessions,
  decodeState,
  encodeRecord,
  encodeSession,
  encodeState,
} from "../../../../src/server/storage/format.ts";
import type { SavedClaim, SavedSession, SavedState } from "../../../../src/server/storage/storage.ts";

const SAVED_CLAIM: SavedClaim = {
  claim: {
    id: "aaaaaaaaaaaaaaaaaaaaaaaaaa",
    locks: [{ key: "k", permits: 1, limit: 2 }],
    ttlMs: 86_400_000,
    tokenCount: 3,
    floor: 12n,
    wait: true,
    label: "host:1",
  },
  token: 1_795_264_600_000_000,
  tokenCount: 3,
  remainingMs: 86_399_000,
  arrival: 7,
  isDetached: true,
  revokeReason: "maxHold",
  sessionId: null,
  account: "ana",
  remainingMaxHoldMs: 5_000,
};

// as earlier servers wrote it: a file must not change with the names in the code
const CLAIM_TEXT =
  '{"claim":{"id":"aaaaaaaaaaaaaaaaaaaaaaaaaa","holds":[{"key":"k","permits":1,"limit":2}],"ttlMs":86400000,"tokens":3,"floor":"12","wait":true,"label":"host:1"},"token":1795264600000000,"tokens":3,"leftMs":86399000,"arrival":7,"detached":true,"revoked":"maxHold","session":null,"by":"ana","holdLeftMs":5000}';

const SAVED_SESSION: SavedSession = {
  id: "s",
  isLocal: true,
  label: "host:1",
  pid: 1,
  pidStart: "2",
  account: "ana",
};

const SESSION_TEXT = '{"id":"s","local":true,"label":"host:1","pid":1,"pidStart":"2","by":"ana"}';

const SAVED_STATE: SavedState = {
  id: "bbbbbbbbbbbbbbbbbbbbbbbbbb",
  generation: 4,
  tokenCeiling: 1_795_264_700_000_000,
  longestLeaseMs: 30_000,
  remote: false,
  hasUnknownHolders: false,
  claimLimits: { claims: 3, claimsPerAccount: 2, waitersPerKey: 1 },
  clean: {
    claims: [SAVED_CLAIM],
    sessions: [SAVED_SESSION],
    recovery: { reason: "crash", remainingMs: 500, tokenCeiling: 9, expectedSessions: ["b"] },
  },
};

describe("the files keep their text", () => {
  test("of a journal record", () => {
    expect(encodeRecord({ put: SAVED_CLAIM })).toBe(`{"put":${CLAIM_TEXT}}`);
    expect(decodeRecord(`{"put":${CLAIM_TEXT}}`)).toEqual({ put: SAVED_CLAIM });
    expect(decodeRecord(encodeRecord({ drop: "id" }))).toEqual({ drop: "id" });
  });

  test.for<[reason: SavedClaim["revokeReason"], text: string]>([
    [null, "false"],
    ["revoked", "true"],
    ["maxHold", '"maxHold"'],
  ])("of a claim whose revocation is %j, without account and longest hold time", ([revokeReason, text]) => {
    const { remainingMaxHoldMs: _, ...withoutMaxHold } = SAVED_CLAIM;
    const saved = { ...withoutMaxHold, account: "", revokeReason };
    expect(encodeRecord({ put: saved })).toContain(`"revoked":${text},"session":null}`);
    expect(decodeRecord(encodeRecord({ put: saved }))).toEqual({ put: saved });
  });

  test("of the list of sessions", () => {
    expect(encodeSession(SAVED_SESSION)).toBe(SESSION_TEXT);
    expect(encodeSession({ gone: "s" })).toBe('{"gone":"s"}');
    const epoch = { id: "state", generation: 1 };
    const chain = new ChecksumChain("sessions", epoch);
    const unnamed = { ...SAVED_SESSION, id: "u", account: "" };
    const lines = [SAVED_SESSION, unnamed, { ...unnamed, id: "v" }, { gone: "v" }].map((record) =>
      chain.appendLine(encodeSession(record)),
    );
    expect(decodeSessions([chain.encodeHeader(), ...lines].join(""), epoch)).toEqual([SAVED_SESSION, unnamed]);
  });

  test("of a state after a clean shutdown", () => {
    const text = encodeState(SAVED_STATE, "boot");
    expect(text).toContain(
      `{"layout":2,"boot":"boot","id":"bbbbbbbbbbbbbbbbbbbbbbbbbb","generation":4,"bound":1795264700000000,"longestMs":30000,"remote":false,"strangers":false,"room":{"claims":3,"claimsPerAccount":2,"waitersPerKey":1},"clean":{"claims":[${CLAIM_TEXT}],"sessions":[${SESSION_TEXT}],"recovery":{"reason":"crash","leftMs":500,"bound":9,"awaited":["b"]}}}`,
    );
    expect(decodeState(text, "state")).toEqual({ saved: SAVED_STATE, boot: "boot" });
  });

  test("of a state of a running server", () => {
    const { claimLimits: _, ...withoutLimits } = SAVED_STATE;
    const saved = { ...withoutLimits, clean: null };
    expect(decodeState(encodeState(saved, null), "state")).toEqual({ saved, boot: null });
  });
});
