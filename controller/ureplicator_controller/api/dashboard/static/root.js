// Addresses of REST, from the place of this file: a proxy may serve all of it below a path of its own.

const ROOT = new URL("..", import.meta.url);

// Address of a path of REST, such as /topics.
export const urlOf = (path) => new URL(path.slice(1), ROOT).href;
