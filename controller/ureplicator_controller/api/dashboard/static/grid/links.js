// Links to the pages of a topic, a worker and a cutover.
import { urlOf } from "../root.js";
import { element } from "./elements.js";

export const topicPage = (route, topic) => {
  const [src, dst] = route.split(".");
  return urlOf(`/show/topic?${new URLSearchParams({ topic, src, dst })}`);
};

export const workerPage = (worker) => urlOf(`/show/worker?${new URLSearchParams({ worker })}`);

export const cutoverPage = (name) => urlOf(`/show/cutover?${new URLSearchParams({ name })}`);

export const link = (text, href) => element("a", { text, href });
