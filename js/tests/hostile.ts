/** A name that tries to break out of wherever it is put. */
export const HOSTILE = '</script><img src=x onerror="globalThis.pwned=1"><b>&amp;\'"';
