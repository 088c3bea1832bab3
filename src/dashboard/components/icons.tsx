/** Small pictures beside words; the words say the same. */

const PATHS = {
  held: "M8 3.2a4.8 4.8 0 1 1 0 9.6 4.8 4.8 0 0 1 0-9.6Z",
  waiting: "M4 2h8v3.2L9.4 8 12 10.8V14H4v-3.2L6.6 8 4 5.2V2Zm1.5 1.5v1.1L8 7.2l2.5-2.6V3.5h-5Z",
  lost: "M8 1.8 15 14H1L8 1.8Zm-.8 4.7.2 4h1.2l.2-4H7.2Zm.8 4.9a.9.9 0 1 0 0 1.8.9.9 0 0 0 0-1.8Z",
  over: "M3 7.2h10v1.6H3z",
  ok: "m6.4 12.4-4-4 1.2-1.2 2.8 2.8 6-6.2 1.2 1.2-7.2 7.4Z",
  unknown:
    "M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13ZM7.2 9.3h1.4c0-1.4 1.9-1.6 1.9-3.3 0-1.3-1-2.2-2.5-2.2-1.4 0-2.4.9-2.5 2.2h1.5c0-.6.4-1 1-1s1 .4 1 .9c0 1.1-1.8 1.3-1.8 3.4Zm.7.9a.9.9 0 1 0 0 1.8.9.9 0 0 0 0-1.8Z",
  copy: "M5 1.5h8a1 1 0 0 1 1 1v9h-1.5V3H5V1.5Zm-2 3h7a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1v-8a1 1 0 0 1 1-1ZM3.5 6v7h6V6h-6Z",
  pause: "M4 3h3v10H4V3Zm5 0h3v10H9V3Z",
  play: "M4.5 2.6 13 8l-8.5 5.4V2.6Z",
  download: "M7.2 2h1.6v6.2l2.3-2.3 1.1 1.2L8 11.3 3.8 7.1l1.1-1.2 2.3 2.3V2ZM2.5 12.4h11V14h-11v-1.6Z",
  back: "M9.9 3 11 4.1 7.2 8l3.8 3.9L9.9 13 5 8l4.9-5Z",
  search: "M7 2a5 5 0 0 1 4 8l3 3-1 1-3-3a5 5 0 1 1-3-9Zm0 1.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7Z",
  theme: "M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13Zm0 1.6v9.8a4.9 4.9 0 0 0 0-9.8Z",
  leave: "M2.5 2H9v1.5H4v9h5V14H2.5V2Zm8.2 2.6L14 8l-3.3 3.4-1.1-1.1L11 8.8H6V7.2h5L9.6 5.7l1.1-1.1Z",
  keyboard:
    "M1.5 4h13a1 1 0 0 1 1 1v6.5a1 1 0 0 1-1 1h-13a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1ZM2 5.5V11h12V5.5H2Zm1.5 1.2h1.3V8H3.5V6.7Zm2.6 0h1.3V8H6.1V6.7Zm2.6 0H10V8H8.7V6.7Zm2.6 0h1.3V8h-1.3V6.7ZM4.8 9h6.4v1.2H4.8V9Z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="currentColor" fill-rule="evenodd" />
    </svg>
  );
}
