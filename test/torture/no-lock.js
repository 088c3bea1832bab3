// A lock library that grants every request: a torture must find it.

export async function openSubject() {
  return {
    async acquire() {
      let isHeld = true;
      return {
        tokens: null,
        leftMs: () => (isHeld ? null : 0),
        onLost: () => undefined,
        async release() {
          isHeld = false;
          return true;
        },
      };
    },
    close: async () => undefined,
  };
}
