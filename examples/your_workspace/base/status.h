// A header of this program with the path of an internal header of Meshift: they must not collide.
#ifndef YOUR_WORKSPACE_BASE_STATUS_H_
#define YOUR_WORKSPACE_BASE_STATUS_H_

namespace your_workspace {

enum class Status { kOk, kFailed };

}  // namespace your_workspace

#endif  // YOUR_WORKSPACE_BASE_STATUS_H_
