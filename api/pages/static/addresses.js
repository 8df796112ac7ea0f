// Addresses of the service: behind a proxy they may begin with a path prefix, the root path.

export const rootPath = document.querySelector('meta[name="root-path"]').content;

/** What to ask for to get a path of the service. */
export const url = (path) => rootPath + path;
