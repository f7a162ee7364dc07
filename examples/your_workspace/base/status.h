// A header of this program: its path is also that of one of Meshift's own, which nobody sees.
#ifndef YOUR_WORKSPACE_BASE_STATUS_H_
#define YOUR_WORKSPACE_BASE_STATUS_H_

namespace your_workspace {

enum class Status { kOk, kFailed };

}  // namespace your_workspace

#endif  // YOUR_WORKSPACE_BASE_STATUS_H_
