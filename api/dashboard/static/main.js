// Starts what the page at hand needs.
import { startActions } from "./actions.js";
import { startLive } from "./live.js";
import { startNotifications } from "./notifications.js";
import { startPlan } from "./plan.js";
import { startPrivate } from "./private.js";
import { startTheme } from "./theme.js";
import { localTimes } from "./times.js";
import { startUpload } from "./upload.js";
import { startKeys } from "./keys.js";
import { startWebhooks } from "./webhooks.js";

startTheme();
localTimes(document);
startActions();
startLive();
startPlan();
startPrivate();
startUpload();
startKeys();
startWebhooks();
startNotifications();
