import { describe, expect, test } from "vitest";
import { decodeRecord, decodeState, encodeRecord, encodeState } from "../../../../src/server/storage/format.ts";
import type { SavedClaim, SavedState } from "../../../../src/server/storage/storage.ts";

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
  tokens: 3,
  leftMs: 86_399_000,
  arrival: 7,
  detached: true,
  revoked: "maxHold",
  session: null,
  by: "ana",
  holdLeftMs: 5_000,
};

// as earlier servers wrote it: a file must not change with the names in the code
const CLAIM_TEXT =
  '{"claim":{"id":"aaaaaaaaaaaaaaaaaaaaaaaaaa","holds":[{"key":"k","permits":1,"limit":2}],"ttlMs":86400000,"tokens":3,"floor":"12","wait":true,"label":"host:1"},"token":1795264600000000,"tokens":3,"leftMs":86399000,"arrival":7,"detached":true,"revoked":"maxHold","session":null,"by":"ana","holdLeftMs":5000}';

const SAVED_STATE: SavedState = {
  id: "bbbbbbbbbbbbbbbbbbbbbbbbbb",
  generation: 4,
  bound: 1_795_264_700_000_000,
  longestMs: 30_000,
  remote: false,
  strangers: false,
  clean: { claims: [SAVED_CLAIM], sessions: [], recovery: null },
};

describe("the files keep their text", () => {
  test("of a journal record", () => {
    expect(encodeRecord({ put: SAVED_CLAIM })).toBe(`{"put":${CLAIM_TEXT}}`);
    expect(decodeRecord(`{"put":${CLAIM_TEXT}}`)).toEqual({ put: SAVED_CLAIM });
    expect(decodeRecord(encodeRecord({ drop: "id" }))).toEqual({ drop: "id" });
  });

  test("of a state after a clean shutdown", () => {
    const text = encodeState(SAVED_STATE, "boot");
    expect(text).toContain(
      `{"layout":2,"boot":"boot","id":"bbbbbbbbbbbbbbbbbbbbbbbbbb","generation":4,"bound":1795264700000000,"longestMs":30000,"remote":false,"strangers":false,"clean":{"claims":[${CLAIM_TEXT}],"sessions":[],"recovery":null}}`,
    );
    expect(decodeState(text, "state")).toEqual({ saved: SAVED_STATE, boot: "boot" });
  });
});
